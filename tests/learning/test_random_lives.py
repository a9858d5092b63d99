"""Random lives of bandits, with values of any size: nothing that is heard leaves a bandit that can't go on.

Slates are rewarded late or never, rewards are corrected and revised, histories come in between; some contexts, rewards
and outcomes of items are as wild as the wire lets them be.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from tests.long_forms import usual_or_long

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION, Kernel
from topk_bandit.learning.corrections import can_correct, correct, revise
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.recent_observations import PastRows
from topk_bandit.learning.state_changes import change_item_features, vacate

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LIVES = usual_or_long(
    [(4, False), (9, True), (16, True), (24, True), (25, False), (35, True)],
    long=list(product(range(1000), [False, True])),
)
"""Seeds, and whether items are heard of: every kind of reward, of usual, tiny and huge scales; with and without
features, encoding and fading."""
WILD_REWARDS = (0.0, 5e-324, 1e-200, 1.0, 1e6, -1e6, 1e50, 1e100, -1e100)
WILD_FACTORS = (0.0, 5e-324, 1e-300, 1e-6, 1e3, 1e5)
SHARE_OF_WILD = 0.04

KINDS: tuple[Callable[[np.random.Generator], float], ...] = (
    lambda rng: float(rng.normal()),
    lambda rng: float(rng.random() < 0.05),
    lambda rng: float(rng.random() < 0.3) * float(rng.lognormal()),
    lambda rng: float(rng.integers(1, 6)),
    lambda _: 1.0,
)


class Earned(NamedTuple):
    """A reward, and what each item did; None where nobody says so."""

    reward: float
    outcomes: NDArray[np.float64] | None


@dataclass
class Life:
    """A bandit, and what is known of its slates."""

    rng: np.random.Generator
    state: State
    kind: Callable[[np.random.Generator], float]
    scale: float
    hears_of_items: bool
    now: float = 0.0
    open: dict[str, tuple[NDArray[np.float64], NDArray[np.int32]]] = field(default_factory=dict)
    ended: dict[str, tuple[NDArray[np.float64], NDArray[np.int32], Earned, float]] = field(default_factory=dict)

    @property
    def n_items(self) -> int:
        return self.state.posterior.kernel.n_items

    def reward(self) -> float:
        if self.rng.random() < SHARE_OF_WILD:
            return float(self.rng.choice(WILD_REWARDS))
        return self.scale * self.kind(self.rng)

    def earned(self) -> Earned:
        size = self.state.posterior.kernel.slate_size
        if not self.hears_of_items or self.rng.random() < 0.2:
            return Earned(self.reward(), None)
        outcomes = np.array([self.reward() for _ in range(size)])
        return Earned(self.reward(), np.where(self.rng.random(size) < 0.2, np.nan, outcomes))

    def context(self) -> NDArray[np.float64]:
        size = self.state.posterior.context_dim - bool(self.state.shared)
        context = self.rng.normal(size=size)
        if self.state.shared:
            return np.asarray(context / max(1.0, float(np.linalg.norm(context))))
        context[0] = 1.0
        is_wild = self.rng.random() < SHARE_OF_WILD
        return np.asarray(context * (float(self.rng.choice(WILD_FACTORS)) if is_wild else 1.0))

    def step(self, number: int) -> None:
        self.now += float(self.rng.exponential())
        if self.rng.random() < 0.75:
            self.show(str(number))
        chance = self.rng.random()
        if self.open and chance < 0.8:
            self.end()
        elif self.ended and chance < 0.97:
            self.revise()
        elif chance < 0.985:
            self.import_history()
        elif self.hears_of_items and chance < 0.99:
            self.vacate()

    def show(self, slate_id: str) -> None:
        context, eligible = self.context(), np.arange(self.n_items, dtype=np.int32)
        one = decide(self.state, DEFAULT_EXPLORATION, context=context, eligible=eligible, rng=self.rng)
        figures = one.mean, one.standard_deviation, one.regret_bound, one.estimated_regret
        assert all(map(math.isfinite, figures)), figures
        assert one.standard_deviation >= 0.0
        self.state = self.state.shown(slate_id, context, one.ranking)
        self.open[slate_id] = context, one.ranking

    def end(self) -> None:
        slate_id = str(self.rng.choice(list(self.open)))
        context, ranking = self.open.pop(slate_id)
        if self.rng.random() < 0.15:
            self.state = self.state.closed(slate_id)
            return
        earned = self.earned()
        self.state = self.state.rewarded(slate_id, context, ranking, at=self.now, **earned._asdict())
        self.ended[slate_id] = context, ranking, earned, self.now

    def revise(self) -> None:
        slate_id = str(self.rng.choice(list(self.ended)[-60:]))
        context, ranking, before, at = self.ended[slate_id]
        now = None if self.rng.random() < 0.2 else self.earned()
        reward, outcomes = now or (None, None)
        if can_correct(self.state, slate_id):
            revised: State | None = correct(self.state, slate_id, reward, outcomes=outcomes)
        else:
            revised = revise(
                self.state,
                slate_id,
                context,
                ranking,
                before=before.reward,
                reward=reward,
                at=at,
                before_outcomes=before.outcomes,
                outcomes=outcomes,
            )
        if revised is None:
            return
        self.state = revised
        if now is None:
            del self.ended[slate_id]
        else:
            self.ended[slate_id] = context, ranking, now, at

    def import_history(self) -> None:
        count, size = int(self.rng.integers(1, 40)), self.state.posterior.kernel.slate_size
        slates = [self.rng.choice(self.n_items, size, replace=False) for _ in range(count)]
        past = PastRows(
            np.array([self.context() for _ in range(count)]),
            np.array(slates, dtype=np.int32),
            np.array([self.reward() for _ in range(count)]),
            self.rng.random(count) * 100.0,
            self.rng.normal(size=(count, size)) if self.hears_of_items and self.rng.random() < 0.5 else None,
        )
        self.state = self.state.learn_history(past, at=self.now)

    def vacate(self) -> None:
        """Let an item lose its place; its slates that are open are learned no more."""
        item = self.rng.integers(self.n_items, size=1).astype(np.int32)
        self.state = vacate(self.state, item, self.now)
        for slates in (self.open, self.ended):
            for slate_id in [one for one, (_, ranking, *_) in slates.items() if np.isin(ranking, item).any()]:
                del slates[slate_id]


def born(seed: int, *, hears_of_items: bool) -> Life:
    rng = np.random.default_rng(seed)
    n_items, context_dim = int(rng.integers(3, 12)), int(rng.integers(1, 5))
    kernel = kernel_of(Kernel.ADAPTIVE, n_items, int(rng.integers(1, min(n_items, 5) + 1)))
    state = State.initial(
        kernel,
        context_dim=context_dim,
        limits=Limits(rows=int(rng.integers(8, 60)), pending_rows=int(rng.integers(1, 8))),
        half_life=math.inf if rng.random() < 0.6 else float(10.0 ** rng.uniform(0.0, 3.0)),
        encoded=bool(rng.random() < 0.3),
    )
    if rng.random() < 0.3:
        state = change_item_features(state, rng.uniform(-0.5, 0.5, size=(n_items, 3)))
    scale = 10.0 ** (rng.uniform(-3.0, 3.0) if rng.random() < 0.8 else rng.uniform(-120.0, 99.0))
    return Life(rng, state, KINDS[int(rng.integers(len(KINDS)))], float(scale), hears_of_items)


@pytest.mark.long_form
@pytest.mark.parametrize(("seed", "hears_of_items"), LIVES)
def test_a_bandit_goes_on_whatever_it_hears(seed: int, *, hears_of_items: bool) -> None:
    life = born(seed, hears_of_items=hears_of_items)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(int(life.rng.integers(50, 400))):
            life.step(number)
