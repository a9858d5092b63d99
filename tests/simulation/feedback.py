"""What callers tell of slates that they were given: activations, rewards, and corrections of these."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from tests.simulation.item_values import draw_item_values
from tests.simulation.ledger import Activation, Correction, Posted

from topk_bandit.domain.bandits import Aggregation, BanditName
from topk_bandit.domain.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    import numpy as np
    from tests.simulation.actions import Action
    from tests.simulation.ledger import Ledger, Response
    from tests.simulation.server import Server
    from tests.simulation.worker import Worker

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import ActivationReceipt, Recommendation, RewardReceipt

__all__ = ["MOST_PATIENCE_SECONDS", "NAME", "RECENT", "Callers", "Feedback", "draw_patience", "word_of"]

NAME = BanditName("shop", "home")
IMPATIENT_SHARE = 0.1
DEAF_SHARE = 0.04
MOST_PATIENCE_SECONDS = 8.0
"""The longest that a caller waits; a slate takes a dozen calls of the store at the worst, each with its timeout."""

RECENT = 12
"""Callers mostly speak of so many slates of late."""

REWARD_IDS = ("look", "cart", "order")
FINAL_SHARE = 0.3

T = TypeVar("T")


class Callers(Protocol):
    """What all callers of a shop share: its workers, its server, its items, the ledger and the trace."""

    ledger: Ledger
    server: Server
    settings: BanditSettings
    items: list[str]

    def any_worker(self, rng: np.random.Generator) -> Worker | None:
        """Draw a worker that lives."""
        ...

    async def call(
        self, worker: Worker, call: Coroutine[object, object, T], patience: float, *, deaf: bool
    ) -> tuple[Response, T | None, str]:
        """Return a caller's response, with its result or the word of a refusal."""
        ...

    def note(self, number: int, words: str) -> None:
        """Enter into the trace what came of an action."""
        ...

    def now(self) -> float:
        """Return the virtual seconds."""
        ...


class Feedback:
    """Callers of a shop who know slates.

    Attributes
    ----------
    acts
        What carries out each kind of action.
    """

    def __init__(self, shop: Callers) -> None:
        self._shop = shop
        self._ledger = shop.ledger
        self._has_several = shop.settings.reward_aggregation is not Aggregation.FIRST
        self.acts: Mapping[str, Callable[[Action, np.random.Generator], Coroutine[None, None, None]]] = {
            "reward": self._reward,
            "reward again": self._reward_again,
            "reward otherwise": self._reward_otherwise,
            "reward late": self._reward_late,
            "reward nothing": self._reward_nothing,
            "reward more": self._reward_more,
            "activate": self._activate,
            "activate again": self._activate_again,
            "activate otherwise": self._activate_otherwise,
            "amend a reward": self._amend,
            "void a reward": self._void,
        }

    def _find_answers(self) -> list[Recommendation]:
        """Return the newest answer to each request that has an id."""
        return [asked.answer for asked in self._ledger.newest_answers() if asked.answer is not None]

    def _waiting(self, known: Mapping[str, object]) -> list[Recommendation]:
        """Return the slates whose deadlines are to come, without those whose ids are known."""
        now_ms = self._shop.server.clock_ms()
        given = [one for one in self._find_answers() if one.recommendation_id not in known]
        return [one for one in given if one.degraded or one.deadline_ms > now_ms]

    # Rewards.

    async def _reward(self, action: Action, rng: np.random.Generator) -> None:
        waiting = [one.recommendation_id for one in self._waiting(self._ledger.posted)]
        await self._post_one_of(action, rng, waiting)

    async def _reward_late(self, action: Action, rng: np.random.Generator) -> None:
        now_ms = self._shop.server.clock_ms()
        late = [one.recommendation_id for one in self._find_answers() if 0 < one.deadline_ms <= now_ms]
        await self._post_one_of(action, rng, late[-2 * RECENT :])

    async def _reward_again(self, action: Action, rng: np.random.Generator) -> None:
        posted = [one for posts in list(self._ledger.posted.values())[-RECENT:] for one in posts]
        if posted:
            again = posted[int(rng.integers(len(posted)))]
            final = again.final or rng.random() < FINAL_SHARE
            # Now and then without what it said of items, which is another reward.
            named = {} if round(abs(again.value) * 1e6) % 7 == 0 else again.item_values
            await self._post(action, rng, replace(again, final=final, item_values=named))

    async def _reward_otherwise(self, action: Action, rng: np.random.Generator) -> None:
        await self._post_one_of(action, rng, list(self._ledger.posted)[-RECENT:])

    async def _reward_more(self, action: Action, rng: np.random.Generator) -> None:
        """Post another one, where a slate may have several."""
        if self._has_several:
            await self._post_one_of(action, rng, list(self._ledger.posted)[-RECENT:])

    async def _reward_nothing(self, action: Action, rng: np.random.Generator) -> None:
        reward_id = self._draw_id(rng)
        await self._post(action, rng, Posted(action.number, f"{action.seed:032x}", 1.0, 0.0, reward_id, final=True))

    async def _post_one_of(self, action: Action, rng: np.random.Generator, ids: Sequence[str]) -> None:
        if ids:
            one, value = ids[int(rng.integers(len(ids)))], round(float(rng.normal()), 6)
            final = not self._has_several or rng.random() < FINAL_SHARE
            named = draw_item_values(self._slate_of(one), value)
            await self._post(action, rng, Posted(action.number, one, value, 0.0, self._draw_id(rng), final, named))

    def _draw_id(self, rng: np.random.Generator) -> str:
        return REWARD_IDS[int(rng.integers(len(REWARD_IDS)))] if self._has_several else ""

    def _slate_of(self, one: str) -> tuple[str, ...]:
        """Return the slate that a caller was given under an id; any other that was shown has the same items."""
        return next((known.slate for known in self._find_answers() if known.recommendation_id == one), ())

    async def _post(self, action: Action, rng: np.random.Generator, wanted: Posted) -> None:
        """Post a reward as it is in the ledger, or is to be."""
        worker = self._shop.any_worker(rng)
        if worker is None:
            return
        one, value, reward_id, final = wanted.recommendation_id, wanted.value, wanted.reward_id, wanted.final
        posted = Posted(action.number, one, value, self._shop.now(), reward_id, final, wanted.item_values)
        self._ledger.posted[one].append(posted)
        call = worker.recommender.reward(
            NAME, one, value, reward_id=reward_id, final=final, item_values=posted.item_values
        )
        name = f" as {reward_id}{', the last' * final}" if reward_id else ""
        named = f" with {len(posted.item_values)} items" if posted.item_values else ""
        await self._tell(action, rng, worker, posted, call, what=f"{value}{name}{named}")
        posted.failovers = self._shop.server.archive.failovers

    # Activations.

    async def _activate(self, action: Action, rng: np.random.Generator) -> None:
        waiting = self._waiting(self._ledger.activated)[-RECENT:]
        if waiting:
            chosen = waiting[int(rng.integers(len(waiting)))]
            shown = chosen.slate[::-1] if rng.random() < 0.3 else ()
            await self._show(action, rng, chosen.recommendation_id, shown)

    async def _activate_again(self, action: Action, rng: np.random.Generator) -> None:
        calls = [call for calls in list(self._ledger.activated.values())[-RECENT:] for call in calls]
        if calls:
            again = calls[int(rng.integers(len(calls)))]
            await self._show(action, rng, again.recommendation_id, again.shown)

    async def _activate_otherwise(self, action: Action, rng: np.random.Generator) -> None:
        given = self._find_answers()[-RECENT:]
        if given:
            chosen = given[int(rng.integers(len(given)))]
            await self._show(action, rng, chosen.recommendation_id, (*chosen.slate[1:], chosen.slate[0]))

    async def _show(self, action: Action, rng: np.random.Generator, one: str, shown: tuple[str, ...]) -> None:
        if worker := self._shop.any_worker(rng):
            activation = Activation(action.number, one, shown)
            self._ledger.activated[one].append(activation)
            call = worker.recommender.activate(NAME, one, shown)
            await self._tell(action, rng, worker, activation, call, what=f"the showing of {','.join(shown) or 'all'}")

    # Corrections.

    async def _amend(self, action: Action, rng: np.random.Generator) -> None:
        await self._correct(action, rng, round(float(rng.normal()), 6))

    async def _void(self, action: Action, rng: np.random.Generator) -> None:
        await self._correct(action, rng, None)

    async def _correct(self, action: Action, rng: np.random.Generator, value: float | None) -> None:
        posted, worker = list(self._ledger.posted)[-RECENT:], self._shop.any_worker(rng)
        if not posted or worker is None:
            return
        one = posted[int(rng.integers(len(posted)))]
        reward_id = "" if rng.random() < 0.3 else self._draw_id(rng)
        named = {} if value is None else draw_item_values(self._slate_of(one), value)
        correction = Correction(action.number, one, reward_id, value, named)
        self._ledger.corrected[one].append(correction)
        call = worker.recommender.correct_reward(NAME, one, value, reward_id=reward_id, item_values=named)
        await self._tell(action, rng, worker, correction, call, what=f"{value} instead of {reward_id or 'the reward'}")

    async def _tell(
        self,
        action: Action,
        rng: np.random.Generator,
        worker: Worker,
        entry: Posted | Activation | Correction,
        call: Coroutine[object, object, RewardReceipt | ActivationReceipt],
        *,
        what: str,
    ) -> None:
        """Carry out a call, and enter its response into the ledger."""
        patience, deaf = draw_patience(rng)
        entry.response, receipt, entry.outcome = await self._shop.call(worker, call, patience, deaf=deaf)
        if receipt is not None:
            entry.outcome, entry.position = str(receipt.outcome), receipt.log_position
        words = f"gets {what} for {entry.recommendation_id[:8]}: {entry.response} {entry.outcome}"
        self._shop.note(action.number, f"worker {worker.number} {words}")


def draw_patience(rng: np.random.Generator) -> tuple[float, bool]:
    """Draw how long a caller waits, and whether the answer does not arrive."""
    impatient, deaf = rng.random(2) < (IMPATIENT_SHARE, DEAF_SHARE)
    return float(rng.uniform(2e-4, 2e-2)) if impatient else MOST_PATIENCE_SECONDS, bool(deaf)


def word_of(error: BaseException) -> str:
    """Return the word of a refusal."""
    if isinstance(error, NotFoundError):
        return "not_found"
    return error.reason if isinstance(error, ConflictError) else str(getattr(error, "reason", type(error).__name__))
