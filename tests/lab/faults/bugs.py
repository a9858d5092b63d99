"""Bugs planted in a store, which the simulation has to find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from topk_bandit.domain.bandits import ActivationOutcome, ActivationReceipt, BanditName, RewardOutcome, RewardReceipt
from topk_bandit.domain.errors import UnavailableError
from topk_bandit.store.recorded import RecordState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.store.log import Correctable, RecordOutcome, Store, Told
    from topk_bandit.store.memory.bandits import MemoryStore

__all__ = [
    "always_doubled_reward",
    "default_for_a_slate_of_nobody",
    "doubled_reward",
    "forgotten_reward",
    "learned_though_not_shown",
    "lost_activation",
    "lost_amendment",
    "lost_reward",
    "other_slate",
    "unfenced_items",
    "wrong_amendment",
]


class _Wrong:
    """A store with one thing that goes wrong now and then."""

    def __init__(self, store: Store, *, every: int) -> None:
        self._store = cast("MemoryStore", store)
        self._every = every
        self._count = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def _is_due(self) -> bool:
        self._count += 1
        return self._count % self._every == 0


class _DoublesRewards(_Wrong):
    async def record_reward(
        self, name: BanditName, recommendation_id: str, value: float, **named: str | bool
    ) -> RewardReceipt:
        receipt = await self._store.record_reward(name, recommendation_id, value, **named)
        if receipt.outcome is RewardOutcome.ACCEPTED and self._is_due():
            recorded = self._store._bandits[name].recorded[recommendation_id]
            recorded.state, kept = RecordState.PENDING, recorded.rewards[:]
            recorded.rewards.clear()
            await self._store.record_reward(name, recommendation_id, value, **named)
            recorded.rewards[:] = kept
        return receipt


class _LosesRewards(_Wrong):
    async def record_reward(
        self, name: BanditName, recommendation_id: str, value: float, **named: str | bool
    ) -> RewardReceipt:
        bandit = self._store._bandits[name]
        if recommendation_id in bandit.deadlines and self._is_due():
            return RewardReceipt(RewardOutcome.ACCEPTED, bandit.log_position + 1)
        return await self._store.record_reward(name, recommendation_id, value, **named)


class _DeniesRecords(_Wrong):
    """Says that nothing was sent, when the slate is recorded: its default will be learned, and nobody has its id."""

    async def record_recommendation(self, *given: Any, **named: Any) -> RecordOutcome:  # noqa: ANN401
        outcome = await self._store.record_recommendation(*given, **named)
        if outcome.position and self._is_due():
            raise UnavailableError("the store is away", nothing_sent=True)
        return outcome


class _IgnoresItemChanges(_Wrong):
    """Records slates whatever items the model knew."""

    async def record_recommendation(self, name: BanditName, *given: Any, **named: Any) -> RecordOutcome:  # noqa: ANN401
        named["items_position"] = self._store._bandits[name].items_position
        return await self._store.record_recommendation(name, *given, **named)

    async def slowest_follower(self, name: BanditName, *, heard_within_ms: int) -> int:  # noqa: ARG002
        return self._store._bandits[name].items_position


class _ForgetsRewards(_Wrong):
    """Takes in one of several rewards, and leaves it out of what they come to."""

    async def record_reward(
        self, name: BanditName, recommendation_id: str, value: float, **named: str | bool
    ) -> RewardReceipt:
        receipt = await self._store.record_reward(name, recommendation_id, value, **named)
        recorded = self._store._bandits[name].recorded[recommendation_id]
        if receipt.outcome is RewardOutcome.ACCEPTED and recorded.is_open and self._is_due():
            recorded.rewards[-1].value = None
        return receipt


class _LosesActivations(_Wrong):
    async def activate(
        self, name: BanditName, recommendation_id: str, shown: Sequence[str] = (), **named: Told | None
    ) -> ActivationReceipt:
        bandit = self._store._bandits[name]
        recorded = bandit.recorded.get(recommendation_id)
        if recorded is not None and recorded.state is RecordState.INACTIVE and self._is_due():
            return ActivationReceipt(ActivationOutcome.ACTIVATED, bandit.log_position + 1)
        return await self._store.activate(name, recommendation_id, shown, **named)


class _MixesUpSlates(_Wrong):
    """Forgets that another slate was shown than the one that it chose."""

    async def activate(
        self, name: BanditName, recommendation_id: str, shown: Sequence[str] = (), **named: Told | None
    ) -> ActivationReceipt:
        receipt = await self._store.activate(name, recommendation_id, shown, **named)
        self._store._bandits[name].recorded[recommendation_id].instead = ()
        return receipt


class _LearnsOfWhatNobodySaw(_Wrong):
    """Takes a reward without an activation."""

    async def record_reward(
        self, name: BanditName, recommendation_id: str, value: float, **named: str | bool
    ) -> RewardReceipt:
        recorded = self._store._bandits[name].recorded.get(recommendation_id)
        if recorded is not None and recorded.state is RecordState.INACTIVE and self._is_due():
            recorded.state = RecordState.PENDING
        return await self._store.record_reward(name, recommendation_id, value, **named)


class _LosesAmendments(_Wrong):
    async def correct_reward(
        self, name: BanditName, recommendation_id: str, value: float | None, **named: str | Correctable
    ) -> RewardReceipt | None:
        bandit = self._store._bandits[name]
        recorded = bandit.recorded.get(recommendation_id)
        if recorded is not None and recorded.state is RecordState.REWARDED and self._is_due():
            return RewardReceipt(RewardOutcome.ACCEPTED, bandit.log_position + 1)
        return await self._store.correct_reward(name, recommendation_id, value, **named)


class _AmendsWrongly(_Wrong):
    """Corrects a reward, and keeps another number."""

    async def correct_reward(
        self, name: BanditName, recommendation_id: str, value: float | None, **named: str | Correctable
    ) -> RewardReceipt | None:
        wrong = value if value is None else value + 1.0
        return await self._store.correct_reward(name, recommendation_id, wrong, **named)


def doubled_reward(store: Store) -> Store:
    return cast("Store", _DoublesRewards(store, every=8))


def always_doubled_reward(store: Store) -> Store:
    return cast("Store", _DoublesRewards(store, every=1))


def lost_reward(store: Store) -> Store:
    return cast("Store", _LosesRewards(store, every=8))


def default_for_a_slate_of_nobody(store: Store) -> Store:
    return cast("Store", _DeniesRecords(store, every=8))


def unfenced_items(store: Store) -> Store:
    return cast("Store", _IgnoresItemChanges(store, every=1))


def forgotten_reward(store: Store) -> Store:
    return cast("Store", _ForgetsRewards(store, every=2))


def lost_activation(store: Store) -> Store:
    return cast("Store", _LosesActivations(store, every=2))


def other_slate(store: Store) -> Store:
    return cast("Store", _MixesUpSlates(store, every=1))


def learned_though_not_shown(store: Store) -> Store:
    return cast("Store", _LearnsOfWhatNobodySaw(store, every=2))


def lost_amendment(store: Store) -> Store:
    return cast("Store", _LosesAmendments(store, every=2))


def wrong_amendment(store: Store) -> Store:
    return cast("Store", _AmendsWrongly(store, every=1))
