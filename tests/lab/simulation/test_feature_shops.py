"""A shop is learned alike in whatever unit its customers are told of, and one wild request changes little."""

from __future__ import annotations

import numpy as np
import pytest
from tests.long_forms import usual_or_long

from topk_bandit.domain.features import width_of
from topk_bandit.lab.simulation.feature_shops import TELLINGS, FeatureShop, play
from topk_bandit.learning.encoding import Encoder

SEEDS, ROUNDS = usual_or_long((2, 200), long=(10, 1000))


@pytest.mark.parametrize("telling", ["cents", "logarithms"])
def test_dollars_cents_and_logarithms_are_the_same_contexts(telling: str) -> None:
    rng = np.random.default_rng(1)
    shop, tellings = FeatureShop.draw(rng), [TELLINGS[name] for name in ("dollars", telling)]
    encoders = [Encoder.initial(one.schema) for one in tellings]
    for _ in range(90):
        customer = shop.customer(rng)
        told = [one.tell(customer) for one in tellings]
        encoders = [encoder.observe(one) for encoder, one in zip(encoders, told, strict=True)]
        plain, other = (encoder.encode(one).context for encoder, one in zip(encoders, told, strict=True))
        np.testing.assert_allclose(other, plain, rtol=1e-9, atol=1e-12)


def test_every_telling_has_a_length_of_about_one() -> None:
    rng = np.random.default_rng(0)
    shop = FeatureShop.draw(rng)
    for name, telling in TELLINGS.items():
        if telling.schema is None:
            continue
        encoder, told = Encoder.initial(telling.schema), [telling.tell(shop.customer(rng)) for _ in range(200)]
        for one in told:
            encoder = encoder.observe(one)
        contexts = np.array([encoder.encode(one).context for one in told])
        assert contexts.shape[1] == width_of(telling.schema)
        assert 0.75 < float((contexts**2).sum(axis=1).mean()) < 1.25, name


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.parametrize(
    ("telling", "than", "most"),
    [
        ("dollars", "expert's vector", usual_or_long(1.25, long=1.05)),
        ("with constants", "dollars", usual_or_long(1.25, long=1.1)),
        ("with duplicates", "dollars", usual_or_long(1.25, long=1.1)),
    ],
)
def test_named_features_are_learned_as_soon(telling: str, than: str, most: float) -> None:
    """The targets of issue 14, in the long form."""
    ours, theirs = (
        sum(play(TELLINGS[name], seed, rounds=ROUNDS).regrets.sum() for seed in range(SEEDS))
        for name in (telling, than)
    )
    assert ours <= most * theirs


@pytest.mark.slow
def test_one_wild_request_does_no_harm() -> None:
    telling = TELLINGS["dollars as differences"]
    plain = [play(telling, seed, rounds=200) for seed in range(2)]
    wild = [
        play(telling, seed, rounds=200, spoil=lambda n, one: one._replace(basket=1e6, age=1e6) if n == 50 else one)
        for seed in range(2)
    ]
    for ours, theirs in zip(np.mean(wild, axis=0)[:, -100:], np.mean(plain, axis=0)[:, -100:], strict=True):
        assert abs(ours.mean() / theirs.mean() - 1.0) < 0.25
