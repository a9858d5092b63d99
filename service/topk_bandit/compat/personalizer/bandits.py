"""The bandits behind Ranks: made at the first one, and kept up with the features and actions of later calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topk_bandit.client import Aggregation, AlreadyExists, Item, NotFound, boolean
from topk_bandit.compat.personalizer.errors import PersonalizerError
from topk_bandit.compat.personalizer.features import CONTEXT_BUCKETS, ITEM_BUCKETS, extend_schema
from topk_bandit.compat.personalizer.left_out import Fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from topk_bandit.client import AsyncClient, Bandit
    from topk_bandit.compat.personalizer.features import FlatFeatures
    from topk_bandit.compat.personalizer.messages import Action, RankCall
    from topk_bandit.domain.features import FeatureSchema

__all__ = ["BanditProvisioner", "Defaults", "Ready"]

FIRST_CAPACITY, MOST_ITEMS = 64, 10_000
ITEM_NUMBERS = 56
"""A schema may have 64; with so many, 10,000 items would not fit into the memory that a bandit has by default."""
REFRESH_SECONDS = 60.0
"""How long an action's features stay as they are: each change of an item that was shown costs a refit."""

NO_FEATURES = boolean("personalizer.nothing-told")
"""The schema of a bandit whose first Rank has no features, as a schema needs one; it is missing always."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a bandit is made with.

    Attributes
    ----------
    default_reward
        The reward of one slot by default.
    keep_schema
        Whether features that a bandit does not have are left out, instead of added.
    """

    default_reward: float
    reward_wait: timedelta
    keep_schema: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """A bandit that can be asked: its settings, and which of the call's actions it may show."""

    settings: Bandit
    action_ids: tuple[str, ...]


@dataclass(slots=True)
class _Known:
    """What is known of a bandit: its items' features, when they were sent, and ids that were retired."""

    settings: Bandit
    items: dict[str, FlatFeatures]
    sent: dict[str, float] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)


class BanditProvisioner:
    """Makes bandits, and adds the features and actions of calls to them.

    Parameters
    ----------
    clock
        Seconds, monotonic.
    """

    def __init__(self, client: AsyncClient, defaults: Defaults, *, clock: Callable[[], float]) -> None:
        self._client, self._defaults, self._clock = client, defaults, clock
        self._known: dict[str, _Known] = {}
        self._lock = asyncio.Lock()
        self._fitting = Fitting()

    async def prepare(self, name: str, call: RankCall) -> Ready:
        """Return the bandit of a call, with all features and actions of the call, as far as its capacity allows.

        Raises
        ------
        PersonalizerError
            It is there with other settings than such calls need.
        ClientError
            As the service has it.
        """
        known = self._known.get(name)
        if known is None or self._lacks(known, call):
            async with self._lock:
                known = self._known.get(name) or await self._open(name, call)
                await self._add_features(known, call)
                await self._add_items(known, self._unsent(known, call.actions))
        return Ready(known.settings, tuple(one.id for one in call.actions if one.id not in known.retired))

    def forget(self, name: str) -> None:
        """Look at a bandit anew at the next call."""
        self._known.pop(name, None)

    def _lacks(self, known: _Known, call: RankCall) -> bool:
        return self._schemas(known.settings, call) != _schemas_of(known.settings) or bool(
            self._unsent(known, call.actions)
        )

    async def _open(self, name: str, call: RankCall) -> _Known:
        try:
            settings = await self._client.get_bandit(name)
        except NotFound:
            settings = await self._create(name, call)
        _check(settings, call)
        items = {item.item_id: dict(item.features) async for item in self._client.items(name)}
        known = self._known[name] = _Known(settings, items)
        return known

    async def _create(self, name: str, call: RankCall) -> Bandit:
        n_slots, defaults = len(call.slots), self._defaults
        contexts, items = _extend_schemas((), (), call)
        return await self._client.create_bandit(
            name,
            slate_size=n_slots,
            item_capacity=max(FIRST_CAPACITY, 2 * len(call.actions)),
            context_schema=contexts or (NO_FEATURES,),
            item_schema=items or None,
            default_reward=defaults.default_reward * n_slots,
            reward_wait=defaults.reward_wait,
            requires_activation=True,
            reward_aggregation=Aggregation.FIRST if call.is_single else Aggregation.SUM,
        )

    def _schemas(self, settings: Bandit, call: RankCall) -> tuple[FeatureSchema, FeatureSchema]:
        """Return the schemas of contexts and items that the bandit should have."""
        own = _schemas_of(settings)
        return own if self._defaults.keep_schema else _extend_schemas(*own, call)

    async def _add_features(self, known: _Known, call: RankCall) -> None:
        if self._schemas(known.settings, call) == _schemas_of(known.settings):
            return
        name = known.settings.name
        # Another process may have added some: its features must not be taken out.
        newest = await self._client.get_bandit(name)
        contexts, items = self._schemas(newest, call)
        changes = {"context_schema": contexts, "item_schema": items or None}
        known.settings = await self._client.update_bandit(name, **changes)  # type: ignore[arg-type]

    def _unsent(self, known: _Known, actions: Sequence[Action]) -> dict[str, FlatFeatures]:
        """Return the features of those actions that are new, or have other features than were sent a while ago."""
        schema, latest = known.settings.item_schema, self._clock() - REFRESH_SECONDS
        whose = f"actions of {known.settings.name}"
        wanted = {
            one.id: self._fitting.fit(whose, one.features, schema) for one in actions if one.id not in known.retired
        }
        return {
            one: features
            for one, features in wanted.items()
            if known.items.get(one) != features
            and (one not in known.items or one not in known.sent or known.sent[one] <= latest)
        }

    async def _add_items(self, known: _Known, features: Mapping[str, FlatFeatures]) -> None:
        if not features:
            return
        try:
            await self._upsert(known, features)
        except AlreadyExists:  # one of them was retired, and the others have to be sent one by one
            for one, own in features.items():
                await self._add_item(known, one, own)

    async def _add_item(self, known: _Known, action: str, features: FlatFeatures) -> None:
        try:
            await self._upsert(known, {action: features})
        except AlreadyExists:
            known.retired.add(action)

    async def _upsert(self, known: _Known, features: Mapping[str, FlatFeatures]) -> None:
        await self._raise_capacity(known, len(known.items.keys() | features.keys()))
        items = [Item(one, features=own) for one, own in features.items()]
        await self._client.upsert_items(known.settings.name, items)
        known.items |= features
        known.sent |= dict.fromkeys(features, self._clock())

    async def _raise_capacity(self, known: _Known, n_items: int) -> None:
        """Raise the capacity before it is reached: a call beyond it is tried again for as long as it may take."""
        capacity, name = known.settings.item_capacity, known.settings.name
        if capacity < min(n_items, MOST_ITEMS):
            wanted = min(MOST_ITEMS, max(2 * capacity, n_items))
            known.settings = await self._client.update_bandit(name, item_capacity=wanted)


def _extend_schemas(
    contexts: FeatureSchema, items: FeatureSchema, call: RankCall
) -> tuple[FeatureSchema, FeatureSchema]:
    contexts = extend_schema(contexts, call.features, buckets=CONTEXT_BUCKETS)
    for action in call.actions:
        items = extend_schema(items, action.features, buckets=ITEM_BUCKETS, spare=1, most_numbers=ITEM_NUMBERS)
    return contexts, items


def _schemas_of(settings: Bandit) -> tuple[FeatureSchema, FeatureSchema]:
    return settings.context_schema or (), settings.item_schema or ()


def _check(settings: Bandit, call: RankCall) -> None:
    """Refuse a bandit that was made for something else."""
    aggregates = call.is_single or settings.reward_aggregation is not Aggregation.FIRST
    for holds, needed in (
        (settings.slate_size == len(call.slots), f"slate_size {len(call.slots)}"),
        (settings.context_schema is not None, "a context_schema"),
        (settings.requires_activation, "requires_activation"),
        (aggregates, "a reward_aggregation of several rewards"),
    ):
        if not holds:
            raise PersonalizerError(409, "OperationNotAllowed", f"the bandit {settings.name} needs {needed}")
