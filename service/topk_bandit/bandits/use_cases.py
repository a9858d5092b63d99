"""The use cases of bandits as protocols, which `rpc` calls.

Arguments are well-formed: names and ids have the right shape, numbers are finite (`rpc.converters` checks it). What
depends on a bandit's settings or items, such as a context's length, is checked by the use cases. Their errors are those
of `topk_bandit.domain.errors`, and name a field as it is called on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import (
        BanditName,
        BanditSettings,
        BanditStats,
        Exploration,
        Item,
        Recommendation,
        RecommendationRequest,
        RewardOutcome,
    )
    from topk_bandit.store.log import BanditRecord, ItemRecord

__all__ = ["BanditUseCases", "RecommenderUseCases", "SettingsChange"]


class RecommenderUseCases(Protocol):
    """The hot path."""

    async def recommend(self, name: BanditName, request: RecommendationRequest) -> Recommendation:
        """Recommend a slate; an empty `request.request_id` is replaced by a fresh one."""
        ...

    async def reward(self, name: BanditName, recommendation_id: str, value: float) -> RewardOutcome:
        """Take in a slate's reward."""
        ...


class SettingsChange(Protocol):
    """A function from a bandit's settings to its new ones; it may run more than once."""

    def __call__(self, settings: BanditSettings, /) -> BanditSettings:
        """Return the new settings."""
        ...


class BanditUseCases(Protocol):
    """What operators and shops set up."""

    @property
    def default_exploration(self) -> Exploration:
        """What a bandit explores with if its settings do not say."""
        ...

    async def create_bandit(self, name: BanditName, settings: BanditSettings) -> BanditRecord:
        """Create a bandit, or return the equal one that is there."""
        ...

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        """Return a bandit."""
        ...

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        """Return up to `limit` bandits of a tenant whose id sorts after `after`."""
        ...

    async def update_bandit(self, name: BanditName, change: SettingsChange) -> BanditRecord:
        """Apply `change` to the settings as they are now, again if somebody else is faster."""
        ...

    async def delete_bandit(self, name: BanditName) -> None:
        """Remove a bandit with all that it learned."""
        ...

    async def upsert_items(self, name: BanditName, items: Sequence[Item]) -> int:
        """Add or change items; return how many the bandit has, retired ones not counted."""
        ...

    async def retire_items(self, name: BanditName, item_ids: Sequence[str]) -> int:
        """Take items out for good; return how many the bandit has, retired ones not counted."""
        ...

    async def list_items(self, name: BanditName, *, after: str, limit: int) -> Sequence[ItemRecord]:
        """Return up to `limit` items that are not retired and whose id sorts after `after`, by id."""
        ...

    async def stats(self, name: BanditName) -> BanditStats:
        """Return where a bandit stands."""
        ...
