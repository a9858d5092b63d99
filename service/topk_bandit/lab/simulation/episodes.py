"""Policies playing rounds in a shop."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.decisions import decide

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import Exploration
    from topk_bandit.lab.simulation.scenarios import Feedback, Scenario
    from topk_bandit.learning.decisions import Decision
    from topk_bandit.learning.policy import State

__all__ = [
    "Episode",
    "GpTopK",
    "GpTopKOfItems",
    "ItemLearner",
    "Late",
    "Player",
    "ProblemSize",
    "Visit",
    "check_slate",
    "deliver",
    "play",
]

FloatArray = NDArray[np.float64]


class ProblemSize(NamedTuple):
    """What every policy knows before its first round: n, k, C, how many different contexts there are, and features.

    The features of the items are as the kernel takes them, shape (n, q); None where the shop sends none.
    """

    n_items: int
    slate_size: int
    context_dim: int
    n_contexts: int
    item_features: FloatArray | None = None


class Visit(NamedTuple):
    """What a policy sees of a round: its number from 0, the context (C,), and the items it can show, ascending."""

    number: int
    context: FloatArray
    eligible: NDArray[np.int32]


class Player(Protocol):
    """What plays: it chooses a slate for a visit, and later hears what an earlier slate earned."""

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round, shape (k,)."""
        ...

    def observe(self, number: int, reward: float) -> None:
        """Learn the reward of the slate chosen in round `number`."""
        ...

    def close(self, number: int) -> None:
        """Learn that the slate chosen in round `number` will have no reward."""
        ...


@runtime_checkable
class ItemLearner(Protocol):
    """A player that also hears what each item of a slate did."""

    def observe_items(self, number: int, reward: float, outcomes: FloatArray) -> None:
        """Learn the reward of the slate chosen in round `number`, and the outcomes of its items, shape (k,)."""
        ...


class GpTopK:
    """The service's policy, without the service.

    Parameters
    ----------
    state
        What it knows at first.
    exploration
        How it tries what it does not know.
    count_pending
        Whether slates that are shown and not yet rewarded count for the variance; False only to show what that is
        worth.
    rng
        Source of the exploration's randomness.
    """

    def __init__(
        self, state: State, exploration: Exploration, *, rng: np.random.Generator, count_pending: bool = True
    ) -> None:
        self.state = state
        self.exploration = exploration
        self._rng = rng
        self._count_pending = count_pending
        self._slates: dict[int, tuple[FloatArray, NDArray[np.int32]]] = {}
        self.last_decision: Decision | None = None
        self._now = 0

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Decide as the service does; a round is the unit of time."""
        self._now = visit.number
        decision = decide(self.state, self.exploration, context=visit.context, eligible=visit.eligible, rng=self._rng)
        self.last_decision = decision
        self._slates[visit.number] = (visit.context, decision.ranking)
        if self._count_pending:
            self.state = self.state.shown(str(visit.number), visit.context, decision.ranking)
        return decision.ranking

    def observe(self, number: int, reward: float) -> None:
        """Learn as the service does."""
        self._learn(number, reward, None)

    def _learn(self, number: int, reward: float, outcomes: FloatArray | None) -> None:
        context, ranking = self._slates.pop(number)
        self.state = self.state.rewarded(str(number), context, ranking, reward=reward, at=self._now, outcomes=outcomes)

    def close(self, number: int) -> None:
        """Stop counting the slate, as the service does."""
        del self._slates[number]
        self.state = self.state.closed(str(number))


class GpTopKOfItems(GpTopK):
    """The service's policy in a shop that says what each item of a slate did."""

    def observe_items(self, number: int, reward: float, outcomes: FloatArray) -> None:
        """Learn as the service does."""
        self._learn(number, reward, outcomes)


class Episode(NamedTuple):
    """What was played, both of shape (rounds,): true regret and expected reward of each round."""

    regret: FloatArray
    reward: FloatArray


def play(scenario: Scenario, player: Player, *, rounds: int, rng: np.random.Generator) -> Episode:
    """Let a player play.

    Customers, noise, waits and preferences depend on `rng` alone, so that all players who are given the same see
    the same. What is due after the last round is heard as before another one; what is due later is not heard.

    Raises
    ------
    InvalidArgumentError
        The player chose something that is no slate of eligible items.
    """
    shop, (of_waits, of_changes) = scenario.shop, rng.spawn(2)
    regret, reward = np.empty(rounds), np.empty(rounds)
    late: list[Late] = []
    for t in range(rounds):
        deliver(player, late, before=t)
        if scenario.preferences is not None:
            moved = scenario.preferences.change_preferences(shop.preferences, t, of_changes)
            shop = shop if moved is shop.preferences else shop.with_preferences(moved)
        customer = int(rng.integers(len(shop.customers)))
        eligible = scenario.stock.eligible(t, len(shop.items))
        ranking = player.choose(Visit(t, shop.customers[customer], eligible))
        check_slate(ranking, eligible, shop.slate_size)
        reward[t] = shop.expect_rewards(customer, ranking[None])[0]
        regret[t] = shop.best(customer, eligible) - reward[t]
        feedback = scenario.wait.feedback(t, of_waits)
        heapq.heappush(late, Late(feedback.round_number, t, feedback, float(reward[t] + shop.noise * rng.normal())))
    deliver(player, late, before=rounds)
    return Episode(regret, reward)


class Late(NamedTuple):
    """What is heard before a round of a slate shown in an earlier one; it is sorted by both.

    `outcomes` are those of its items, shape (k,); None where the shop has none, or the player takes none.
    """

    due: int
    number: int
    feedback: Feedback
    reward: float
    outcomes: FloatArray | None = None


def deliver(player: Player, late: list[Late], *, before: int) -> None:
    """Let a player hear what is due before a round: first what is due first, and of that what was shown first."""
    while late and late[0].due <= before:
        one = heapq.heappop(late)
        if one.feedback.rewarded and one.outcomes is not None and isinstance(player, ItemLearner):
            player.observe_items(one.number, one.reward, one.outcomes)
        elif one.feedback.rewarded:
            player.observe(one.number, one.reward)
        elif one.feedback.default is not None:
            player.observe(one.number, one.feedback.default)
        else:
            player.close(one.number)


def check_slate(ranking: NDArray[np.int32], eligible: NDArray[np.int32], slate_size: int) -> None:
    """Raise `InvalidArgumentError` unless a ranking is a slate of eligible items."""
    shown, items = set(ranking.ravel().tolist()), set(eligible.tolist())
    if ranking.dtype.kind != "i" or ranking.shape != (slate_size,) or len(shown) < slate_size or not shown <= items:
        problem = f"expected {slate_size} different items of {sorted(items)}, got {ranking.tolist()}"
        raise InvalidArgumentError("ranking", problem)
