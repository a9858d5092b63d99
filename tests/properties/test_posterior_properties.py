"""Any order of showing, rewarding, discarding, observing, refitting and branching, against a dense Gaussian process."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, initialize, multiple, rule
from tests.learning.contents import attributes, content_kind
from tests.learning.dense import KINDS, WCK, DenseGp, Kind, assert_close, fitted, newest_rows, rankings_of, same, sample
from tests.long_forms import examples

from topk_bandit.learning.kendall import Shape
from topk_bandit.learning.posterior import Moments, Posterior

pytestmark = pytest.mark.bits

N_ITEMS, SLATE_SIZE = 7, 3
CONTEXT = np.array([0.8, -0.5])
TO_ASK = rankings_of(N_ITEMS, SLATE_SIZE, 12, np.random.default_rng(97))
ORDERS = st.permutations(range(N_ITEMS)).map(lambda order: tuple(order[:SLATE_SIZE]))
ALL_KINDS = (*KINDS, content_kind(Shape(0.5, 1.0, 0.25, 4.0), attributes(N_ITEMS, 3)))
NUMBERS = st.floats(-2.0, 2.0).map(lambda number: round(number, 3))
CONTEXTS = st.tuples(NUMBERS, NUMBERS)
REWARDS = st.floats(-5.0, 5.0).map(lambda number: round(number, 3))

Row = tuple[tuple[float, float], tuple[int, ...]]


@dataclass(frozen=True)
class Twin:
    """A posterior and the plain lists that it should amount to."""

    posterior: Posterior
    kind: Kind
    rows: tuple[tuple[Row, float], ...] = ()
    pending: tuple[Row, ...] = ()

    def dense(self) -> DenseGp:
        p = self.posterior
        return DenseGp(
            self.kind,
            N_ITEMS,
            p.noise_variance,
            np.array([row[0] for row, _ in self.rows]).reshape(-1, 2),
            np.array([row[1] for row, _ in self.rows], dtype=np.int32).reshape(-1, SLATE_SIZE),
            np.array([reward for _, reward in self.rows]),
            np.array([row[0] for row in self.pending]).reshape(-1, 2),
            np.array([row[1] for row in self.pending], dtype=np.int32).reshape(-1, SLATE_SIZE),
            offset=p.offset,
            amplitude=p.amplitude,
        )

    def check(self) -> Moments:
        """Compare with the dense process and return the predictions, to compare them to the bit later."""
        posterior, dense = self.posterior, self.dense()
        assert (posterior.n_rows, posterior.n_pending) == (len(self.rows), len(self.pending))
        assert posterior.observations.rewards.tolist() == dense.rewards.tolist()
        assert posterior.observations.rankings.tolist() == dense.rankings.tolist()
        assert posterior.observations.contexts.tolist() == dense.contexts.tolist()
        assert posterior.pending.rankings.tolist() == [list(row[1]) for row in self.pending]
        assert posterior.pending.contexts.tolist() == [list(row[0]) for row in self.pending]
        moments = posterior.predict(CONTEXT, TO_ASK)
        assert_close(moments, dense.predict(CONTEXT, TO_ASK), atol=1e-8)
        if self.rows:
            assert math.isclose(posterior.best_offset, dense.best_offset, rel_tol=1e-6, abs_tol=1e-8)
            square = dense.whitened_square(0.7)
            assert math.isclose(posterior.whitened_square(0.7), square, rel_tol=1e-8, abs_tol=1e-8)
        return moments


class PosteriorMachine(RuleBasedStateMachine):
    """Every rule starts from any twin that was ever made, so that branches compete for the same arrays."""

    twins = Bundle("twins")

    def __init__(self) -> None:
        super().__init__()
        self.remembered: list[tuple[Posterior, Moments]] = []

    def keep(self, twin: Twin) -> Twin:
        self.remembered.append((twin.posterior, twin.check()))
        return twin

    @initialize(target=twins, kind=st.sampled_from(ALL_KINDS), noise_variance=st.sampled_from([0.01, 0.3, 10.0]))
    def start(self, kind: Kind, noise_variance: float) -> Twin:
        kernel = kind.make(N_ITEMS, SLATE_SIZE)
        return self.keep(Twin(Posterior.prior(kernel, context_dim=2, noise_variance=noise_variance), kind))

    @rule(target=twins, twin=twins, rows=st.lists(st.tuples(CONTEXTS, ORDERS), min_size=1, max_size=5))
    def show(self, twin: Twin, rows: list[Row]) -> Twin:
        posterior = twin.posterior.show([row[0] for row in rows], [row[1] for row in rows])
        return self.keep(replace(twin, posterior=posterior, pending=(*twin.pending, *rows)))

    @rule(target=twins, twin=twins, where=st.floats(0.0, 0.999), reward=REWARDS)
    def reward(self, twin: Twin, where: float, reward: float) -> Twin | MultipleResults[Twin]:
        if not twin.pending:
            return multiple()
        chosen = int(where * len(twin.pending))
        rows = (*twin.rows, (twin.pending[chosen], reward))
        pending = twin.pending[:chosen] + twin.pending[chosen + 1 :]
        return self.keep(replace(twin, posterior=twin.posterior.reward(chosen, reward), rows=rows, pending=pending))

    @rule(target=twins, twin=twins, where=st.floats(0.0, 0.999))
    def discard(self, twin: Twin, where: float) -> Twin | MultipleResults[Twin]:
        if not twin.pending:
            return multiple()
        chosen = int(where * len(twin.pending))
        pending = twin.pending[:chosen] + twin.pending[chosen + 1 :]
        return self.keep(replace(twin, posterior=twin.posterior.discard(chosen), pending=pending))

    @rule(
        target=twins,
        twin=twins,
        rows=st.lists(st.tuples(st.tuples(CONTEXTS, ORDERS), REWARDS), min_size=1, max_size=8),
    )
    def observe(self, twin: Twin, rows: list[tuple[Row, float]]) -> Twin:
        contexts, rankings = [row[0] for row, _ in rows], [row[1] for row, _ in rows]
        posterior = twin.posterior.observe(contexts, rankings, [reward for _, reward in rows])
        return self.keep(replace(twin, posterior=posterior, rows=(*twin.rows, *rows)))

    @rule(target=twins, twin=twins, newest=st.integers(0, 20), noise_variance=st.sampled_from([0.01, 0.3, 10.0]))
    def refit(self, twin: Twin, newest: int, noise_variance: float) -> Twin:
        posterior = twin.posterior.refit(newest_rows(twin.posterior, newest), noise_variance=noise_variance)
        return self.keep(replace(twin, posterior=posterior, rows=twin.rows[max(len(twin.rows) - newest, 0) :]))

    @rule(target=twins, twin=twins, kind=st.sampled_from(ALL_KINDS))
    def turn(self, twin: Twin, kind: Kind) -> Twin:
        old = twin.posterior
        posterior = old.refit(
            old.observed_rows, noise_variance=old.noise_variance, kernel=kind.make(N_ITEMS, SLATE_SIZE)
        )
        return self.keep(replace(twin, posterior=posterior, kind=kind))

    @rule(target=twins, twin=twins, offset=REWARDS, amplitude=st.floats(0.1, 9.0))
    def rescale(self, twin: Twin, offset: float, amplitude: float) -> Twin:
        return self.keep(replace(twin, posterior=twin.posterior.rescale(offset=offset, amplitude=amplitude)))

    def teardown(self) -> None:
        for posterior, before in self.remembered:
            assert same(posterior.predict(CONTEXT, TO_ASK), before)


TestPosteriorMachine = PosteriorMachine.TestCase
TestPosteriorMachine.settings = settings(
    derandomize=True, deadline=None, max_examples=examples(30), stateful_step_count=40
)


@given(st.permutations(range(25)), st.integers(0, 10_000))
@settings(max_examples=examples(30))
def test_the_order_of_observations_does_not_matter(order: list[int], seed: int) -> None:
    data = sample(WCK, np.random.default_rng(seed), n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=2, count=25)
    one, other = fitted(WCK, data, n_items=N_ITEMS), fitted(WCK, data[order], n_items=N_ITEMS)
    assert_close(other.predict(CONTEXT, TO_ASK), one.predict(CONTEXT, TO_ASK), atol=1e-9)
    assert math.isclose(other.best_offset, one.best_offset, abs_tol=1e-8)


@given(st.permutations(range(10)), st.integers(0, 10_000))
@settings(max_examples=examples(30))
def test_the_order_in_which_rewards_arrive_does_not_matter(order: list[int], seed: int) -> None:
    data = sample(WCK, np.random.default_rng(seed), n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=2, count=10)
    prior = Posterior.prior(WCK.make(N_ITEMS, SLATE_SIZE), context_dim=2, noise_variance=0.1)
    posterior, left = prior.show(data.contexts, data.rankings), list(range(10))
    for place in order:
        posterior = posterior.reward(left.index(place), float(data.rewards[place]))
        left.remove(place)
    assert_close(posterior.predict(CONTEXT, TO_ASK), prior.observe(*data.rows).predict(CONTEXT, TO_ASK), atol=1e-9)


@given(st.integers(0, 10_000), st.floats(0.1, 3.0))
@settings(max_examples=examples(30))
def test_an_observation_never_widens_the_variance(seed: int, noise_variance: float) -> None:
    data = sample(WCK, np.random.default_rng(seed), n_items=N_ITEMS, slate_size=SLATE_SIZE, context_dim=2, count=12)
    posterior = Posterior.prior(WCK.make(N_ITEMS, SLATE_SIZE), context_dim=2, noise_variance=noise_variance)
    variance = posterior.predict(CONTEXT, TO_ASK).variance
    for context, ranking, reward in zip(*data.rows, strict=True):
        posterior = posterior.observe(context, ranking, reward)
        narrower = posterior.predict(CONTEXT, TO_ASK).variance
        assert (narrower <= variance + 1e-12).all()
        variance = narrower
