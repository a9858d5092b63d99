"""A store that tells telemetry how long each of its calls takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from topk_bandit.serving.hooks import Hooks
    from topk_bandit.store.log import BanditRecord, ItemRecord, LogSlice, RecordOutcome, Snapshot, Store, StoreReport
    from topk_bandit.types import (
        BanditName,
        BanditSettings,
        Item,
        Prior,
        Recommendation,
        RecommendationRequest,
        RewardOutcome,
    )

__all__ = ["ObservedStore", "timed"]

_Result = TypeVar("_Result")


class ObservedStore:
    """A `Store` that calls another one, and `Hooks.store_called` after each call."""

    def __init__(self, store: Store, hooks: Hooks) -> None:
        self._store = store
        self._hooks = hooks

    async def create_bandit(
        self,
        name: BanditName,
        settings: BanditSettings,
        *,
        incarnation: str,
        quota: int,
        prior: Prior | None = None,
    ) -> BanditRecord:
        """See `Store.create_bandit`."""
        call = self._store.create_bandit(name, settings, incarnation=incarnation, quota=quota, prior=prior)
        return await self._timed("create_bandit", call)

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        """See `Store.get_bandit`."""
        return await self._timed("get_bandit", self._store.get_bandit(name))

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        """See `Store.list_bandits`."""
        return await self._timed("list_bandits", self._store.list_bandits(tenant, after=after, limit=limit))

    async def update_settings(
        self, name: BanditName, settings: BanditSettings, *, revision: int, prior: Prior | None = None
    ) -> BanditRecord:
        """See `Store.update_settings`."""
        call = self._store.update_settings(name, settings, revision=revision, prior=prior)
        return await self._timed("update_settings", call)

    async def delete_bandit(self, name: BanditName) -> None:
        """See `Store.delete_bandit`."""
        await self._timed("delete_bandit", self._store.delete_bandit(name))

    async def change_items(self, name: BanditName, *, upserted: Sequence[Item], retired: Sequence[str]) -> BanditRecord:
        """See `Store.change_items`."""
        call = self._store.change_items(name, upserted=upserted, retired=retired)
        return await self._timed("change_items", call)

    async def note_follower(self, name: BanditName, *, follower: str, items_position: int) -> int:
        """See `Store.note_follower`."""
        call = self._store.note_follower(name, follower=follower, items_position=items_position)
        return await self._timed("note_follower", call)

    async def slowest_follower(self, name: BanditName, *, heard_within_ms: int) -> int:
        """See `Store.slowest_follower`."""
        return await self._timed(
            "slowest_follower", self._store.slowest_follower(name, heard_within_ms=heard_within_ms)
        )

    async def list_items(self, name: BanditName) -> Sequence[ItemRecord]:
        """See `Store.list_items`."""
        return await self._timed("list_items", self._store.list_items(name))

    async def record_recommendation(
        self,
        name: BanditName,
        request: RecommendationRequest,
        recommendation: Recommendation,
        *,
        incarnation: str,
        items_position: int,
    ) -> RecordOutcome:
        """See `Store.record_recommendation`."""
        call = self._store.record_recommendation(
            name, request, recommendation, incarnation=incarnation, items_position=items_position
        )
        return await self._timed("record_recommendation", call)

    async def find_recommendation(
        self, name: BanditName, request: RecommendationRequest, recommendation_id: str
    ) -> Recommendation | None:
        """See `Store.find_recommendation`."""
        call = self._store.find_recommendation(name, request, recommendation_id)
        return await self._timed("find_recommendation", call)

    async def record_reward(self, name: BanditName, recommendation_id: str, value: float) -> RewardOutcome:
        """See `Store.record_reward`."""
        return await self._timed("record_reward", self._store.record_reward(name, recommendation_id, value))

    async def expire_due(self, name: BanditName, *, limit: int) -> int:
        """See `Store.expire_due`."""
        return await self._timed("expire_due", self._store.expire_due(name, limit=limit))

    async def read_log(self, name: BanditName, *, start: int, limit: int) -> LogSlice:
        """See `Store.read_log`."""
        return await self._timed("read_log", self._store.read_log(name, start=start, limit=limit))

    async def save_snapshot(self, name: BanditName, snapshot: Snapshot, *, incarnation: str) -> bool:
        """See `Store.save_snapshot`."""
        call = self._store.save_snapshot(name, snapshot, incarnation=incarnation)
        return await self._timed("save_snapshot", call)

    async def load_snapshots(self, name: BanditName) -> Sequence[Snapshot]:
        """See `Store.load_snapshots`."""
        return await self._timed("load_snapshots", self._store.load_snapshots(name))

    def changes(self) -> AsyncIterator[BanditName | None]:
        """See `Store.changes`; not timed, since it waits."""
        return self._store.changes()

    async def check(self) -> StoreReport:
        """See `Store.check`."""
        return await self._timed("check", self._store.check())

    async def close(self) -> None:
        """See `Store.close`."""
        await self._store.close()

    async def _timed(self, operation: str, call: Awaitable[_Result]) -> _Result:
        return await timed(self._hooks, operation, call)


async def timed(hooks: Hooks, operation: str, call: Awaitable[_Result]) -> _Result:
    """Wait for a call of the store, and tell how long it took, and whether the store was away."""
    start, failed = time.perf_counter(), True
    try:
        result = await call
    except UnavailableError:
        raise
    except Exception:
        failed = False
        raise
    else:
        failed = False
        return result
    finally:
        hooks.store_called(operation, time.perf_counter() - start, failed=failed)
