"""The service's own answers beside a dense Gaussian process that lists all slates (`tests.dense_bandit`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.dense_bandit import ADAPTIVE, WCK, Answer, DenseBandit, Prior, check_answer, check_moments, find_best

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.domain.bandits import BanditSettings, ConstantBeta, Exploration, Item, Kernel
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.limits import Limits
from topk_bandit.store.events import (
    BanditCreated,
    ItemsChanged,
    LoggedEvent,
    Recommended,
    Rewarded,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.events import Event

N_ITEMS, SLATE_SIZE, UNIFORM, NEAR = 6, 3, 0.25, 0.4
PRIORS = {Kernel.WEIGHTED_CONVOLUTIONAL: WCK, Kernel.ADAPTIVE: ADAPTIVE}


@dataclass
class Twins:
    """A bandit as the service has it, and the same by the textbook."""

    model: Model
    dense: DenseBandit
    rng: np.random.Generator

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        beta: float,
        *,
        baseline: tuple[str, ...] = (),
        items: Sequence[Item] = tuple(Item(f"i{n}") for n in range(N_ITEMS)),
        item_schema: FeatureSchema | None = None,
    ) -> Twins:
        settings = BanditSettings(
            item_capacity=len(items),
            slate_size=SLATE_SIZE,
            context_dim=2,
            kernel=kernel,
            exploration=Exploration(ConstantBeta(beta), UNIFORM, NEAR),
            reward_wait_ms=1000,
            default_reward=None,
            baseline_item_ids=baseline,
            item_schema=item_schema,
        )
        model = begin("birth", LoggedEvent(1, 1, BanditCreated(settings)), limits=Limits())
        dense = DenseBandit(len(items), SLATE_SIZE, PRIORS[kernel], beta, UNIFORM, NEAR)
        twins = cls(model, dense, np.random.default_rng(4))
        twins.happen(ItemsChanged(tuple(items)))
        return twins

    def happen(self, event: Event) -> None:
        self.model = fold(self.model, LoggedEvent(self.model.version + 1, 1, event))

    def ask(self, request_id: str, eligible: Sequence[int]) -> tuple[RecommendationRequest, Recommendation]:
        candidates = None if len(eligible) == N_ITEMS else tuple(map(name_of, eligible))
        request = RecommendationRequest(request_id, tuple(self.rng.normal(size=2).tolist()), candidates)
        return request, choose_slate(self.model, request)

    def show(self, request: RecommendationRequest, shown: Recommendation) -> None:
        self.happen(Recommended(request, shown))
        self.dense = self.dense.show(request.context, places_of(shown.slate))

    def reward(self, request: RecommendationRequest, shown: Recommendation, value: float) -> None:
        self.happen(Rewarded(shown.recommendation_id, value, Shown(request.context, shown.slate, 1)))
        self.dense = self.dense.reward(request.context, places_of(shown.slate), value)

    def know_what_was_chosen(self) -> None:
        """Have the textbook take over what rewards chose, which has oracles of its own."""
        posterior = self.model.state.posterior
        shape, shared = posterior.kernel.shape, self.model.state.shared
        prior = self.dense.prior if shape is None else Prior(*shape[:3], shared=shared)
        self.dense = replace(self.dense, prior=replace(prior, noise=posterior.noise_variance))


def name_of(item: int) -> str:
    return f"i{item}"


def places_of(slate: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(name[1:]) for name in slate)


def answer_of(shown: Recommendation) -> Answer:
    return Answer(
        places_of(shown.slate),
        shown.propensity,
        shown.position_propensities,
        shown.mean,
        shown.standard_deviation,
        shown.explored,
        places_of(shown.best_slate) or None,
    )


def eligible_at(number: int, rng: np.random.Generator) -> list[int]:
    """Return the items that may be shown: first all are shown once, since new items stand for each other."""
    if number < 2:
        return list(range(3 * number, 3 * number + 3))
    return sorted(rng.permutation(N_ITEMS)[: (6, 5, 6, 4)[number % 4]].tolist())


def live(twins: Twins, rounds: int) -> Counter[str]:
    """Show slates, reward two of three at once and others later or never; count the kinds that were shown."""
    kinds: Counter[str] = Counter()
    for n in range(rounds):
        eligible = eligible_at(n, twins.rng)
        request, shown = twins.ask(f"r{n}", eligible)
        assert shown == choose_slate(twins.model, request), "the same request has the same answer"
        slates = twins.dense.list_slates(eligible)
        kinds[check_answer(twins.dense, request.context, slates, answer_of(shown))] += 1
        twins.show(request, shown)
        if n % 3:
            twins.reward(request, shown, float(twins.rng.normal()))
            twins.know_what_was_chosen()
    return kinds


@pytest.mark.parametrize(("kernel", "beta"), [*((kernel, 1.0) for kernel in PRIORS), (next(iter(PRIORS)), 0.0)])
def test_each_answer_is_the_textbooks(kernel: Kernel, beta: float) -> None:
    twins = Twins.of(kernel, beta)
    kinds = live(twins, 45)
    assert twins.model.state.since_refit < twins.model.state.observations == 30
    assert min(kinds[kind] for kind in ("best", "near", "far")) >= 5


@pytest.mark.parametrize("kernel", PRIORS)
def test_without_waiting_slates_and_rewards_that_differ_the_mean_is_what_all_were(kernel: Kernel) -> None:
    twins = Twins.of(kernel, 1.0)
    for n in range(4):
        request, shown = twins.ask(f"r{n}", range(N_ITEMS))
        slates = twins.dense.list_slates(range(N_ITEMS))
        check_answer(twins.dense, request.context, slates, answer_of(shown))
        assert shown.mean == pytest.approx(2.5 if n else 0.0)
        twins.show(request, shown)
        twins.reward(request, shown, 2.5)


@pytest.mark.parametrize("kernel", PRIORS)
def test_the_baseline_slate_has_its_own_figures(kernel: Kernel) -> None:
    twins = Twins.of(kernel, 1.0, baseline=("i4", "i0", "i2"))
    live(twins, 12)
    twins.happen(ItemsChanged(tuple(Item(name_of(n), available=n in {0, 2, 4}) for n in range(N_ITEMS))))
    request = RecommendationRequest("short", (0.4, -1.0), ("i1", "i4", "i0"))
    shown = choose_slate(twins.model, request)
    assert (shown.slate, shown.baseline, shown.explored) == (("i4", "i0", "i2"), True, False)
    assert (shown.propensity, shown.position_propensities) == (1.0, (1.0, 1.0, 1.0))
    check_moments(twins.dense, request.context, answer_of(shown))


@pytest.mark.parametrize("kernel", PRIORS)
def test_the_textbook_would_notice_another_order(kernel: Kernel) -> None:
    """The largest acquisition value is that of one order of the items: no other comes near it."""
    twins = Twins.of(kernel, 0.0)
    live(twins, 12)
    values = twins.dense.acquisition((0.4, -1.0), twins.dense.list_slates(range(N_ITEMS)))
    assert len(find_best(values)) == 1
