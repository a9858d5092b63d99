"""The use cases of operators and shops: bandits, their settings and their items.

A call that changes items returns once every worker that is alive knows the change. A change of settings applies to the
newest settings, and is tried again if somebody else changes them meanwhile. Nothing here checks the shape of names and
numbers: `rpc` has done so.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from topk_bandit.bandits.contexts import (
    ITEM_SCHEMA_FIELD,
    check_growth,
    check_item_schema,
    check_own_rules,
    take_items,
    take_mask,
)
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.exposures import describe_exposures
from topk_bandit.bandits.imports import import_rows
from topk_bandit.bandits.lifts import describe_conservative, describe_lift, describe_shadow, in_shadow
from topk_bandit.bandits.priors import FIELD, check_kernel, check_prior
from topk_bandit.domain.bandits import WHOLE_ITEMS, Kernel
from topk_bandit.domain.errors import (
    ConflictError,
    ExhaustedError,
    InvalidArgumentError,
    NotPermittedError,
    NotReadyError,
    UnavailableError,
)
from topk_bandit.domain.features import FeatureStats
from topk_bandit.domain.quotas import UNLIMITED, Quota
from topk_bandit.domain.rules import describe_declared
from topk_bandit.domain.statistics import BanditStats, HyperparameterStats
from topk_bandit.learning.feature_shares import find_shares
from topk_bandit.learning.robust_ranges import NO_VALUES
from topk_bandit.store.codec import prior_digest
from topk_bandit.store.data_versions import check_data_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.bandits.digests import Digests
    from topk_bandit.bandits.imports import ImportReceipt, RowsOfImport
    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.bandits.priors import Priors
    from topk_bandit.bandits.tenant_quotas import TenantQuotas
    from topk_bandit.domain.bandits import BanditName, BanditSettings, Exploration, Item, ItemMask, Prior
    from topk_bandit.domain.durability import Durability
    from topk_bandit.domain.statistics import LogReach
    from topk_bandit.learning.encoding import Encoder
    from topk_bandit.learning.feature_shares import FeatureShares
    from topk_bandit.store.log import BanditRecord, ImportProgress, Store
    from topk_bandit.store.whole_logs import WholeLogs

__all__ = ["Bandits"]

FOLLOWER_SILENCE_MS = 3000
"""A follower that was silent for so long is taken for dead; live ones report every second."""

FOLLOWER_PAUSE_SECONDS = 0.005

PRIOR_SHARE = 3 / 16
"""The largest share of the memory of a bandit that its prior may take."""

ITEM_FEATURES_SHARE = 5 / 8
"""The largest share of the memory of a bandit that the features of its items may take."""

UPDATES_PER_CALL = 16
"""How often a call reads the settings again because somebody else changed them meanwhile, before it gives up."""


class Bandits:
    """What operators and shops set up.

    Arguments are well-formed: names and ids have the right shape, and numbers are finite. What depends on a bandit's
    settings or items is checked here, and an error names the field as the wire does.

    Parameters
    ----------
    logs
        How far back logs can be read.
    default_exploration
        What a bandit explores with if its settings do not say.
    quotas
        How many bandits and items a tenant may have, and how much in the store.
    new_id
        Returns a fresh incarnation.
    """

    def __init__(
        self,
        store: Store,
        models: ModelCache,
        *,
        logs: WholeLogs,
        default_exploration: Exploration,
        quotas: TenantQuotas,
        new_id: Callable[[], str],
        priors: Priors,
    ) -> None:
        self._store = store
        self._logs = logs
        self._priors = priors
        self._models = models
        self.default_exploration = default_exploration
        self._quotas = quotas
        self._new_id = new_id

    @property
    def data_version(self) -> int:
        """The data version in force."""
        return self._store.data_version

    async def create_bandit(self, name: BanditName, settings: BanditSettings) -> BanditRecord:
        """Create a bandit, or return the equal one that is there."""
        self._check_item_schema(settings)
        check_own_rules(settings)
        check_data_version(settings, self._store.data_version)
        await self._check_durability(settings.durability)
        resolved, prior = await self._resolve_prior(name, settings)
        quota = self._quotas.limit(name.tenant, Quota.BANDITS)
        try:
            return await self._store.create_bandit(name, resolved, incarnation=self._new_id(), quota=quota, prior=prior)
        except ConflictError:
            # The study may have learned more since the bandit was created with it.
            known = await self._store.get_bandit(name)
            if replace(resolved, prior_digest=known.settings.prior_digest) == known.settings:
                return known
            raise

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        """Return a bandit."""
        return await self._store.get_bandit(name)

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        """Return up to `limit` bandits of a tenant whose id sorts after `after`."""
        return await self._store.list_bandits(tenant, after=after, limit=limit)

    async def take_off(self, name: BanditName, reason: str) -> bool:
        """Put a bandit in shadow because its guardrail asks for that; return whether this call did it."""
        before, after = await self._change(name, in_shadow, reason=reason)
        return after.settings != before.settings

    async def update_bandit(self, name: BanditName, change: Callable[[BanditSettings], BanditSettings]) -> BanditRecord:
        """Apply `change` to the settings as they are now, again if somebody else is faster; return the bandit.

        What is overdue is closed under the old settings. When the call returns, this worker decides with the new
        settings; the others hear of them within a moment.
        """
        _, after = await self._change(name, change)
        return after

    async def _change(
        self, name: BanditName, change: Callable[[BanditSettings], BanditSettings], *, reason: str = ""
    ) -> tuple[BanditRecord, BanditRecord]:
        """Change a bandit's settings; return it before and after. The log has the reason of a guardrail's change."""
        await self._check_learner(name)
        await self._models.expire(name)
        for _ in range(UPDATES_PER_CALL):
            record = await self._store.get_bandit(name)
            changed = change(record.settings)
            check_data_version(changed, self._store.data_version)
            check_growth(record.settings.context_schema, changed.context_schema)
            check_growth(record.settings.item_schema, changed.item_schema, field=ITEM_SCHEMA_FIELD, may_begin=True)
            self._check_item_schema(changed)
            check_own_rules(changed)
            if changed.durability != record.settings.durability:
                await self._check_durability(changed.durability)
            settings, prior = await self._resolve_prior(name, changed)
            try:
                updated = await self._store.update_settings(
                    name, settings, revision=record.revision, prior=prior, reason=reason
                )
            except ConflictError:
                continue
            await self._models.follow(name)
            return record, updated
        raise UnavailableError(f"the settings of {name} change faster than they can be updated")

    async def _check_durability(self, durability: Durability | None) -> None:
        """Refuse a bandit's own class if the store's settings can't keep it; replicas may be away for now."""
        if durability is None:
            return
        problems = (await self._store.check(durability)).problems
        if problems:
            message = f"the store can't keep {durability}. {' '.join(problems)}"
            raise NotReadyError("DURABILITY_NOT_KEPT", message)

    async def reset_bandit(self, name: BanditName, *, request_id: str = "") -> BanditRecord:
        """Forget what a bandit learned from rewards, once for a request id; items, settings and open slates stay.

        When the call returns, this worker decides without it; the others hear of it within a moment.
        """
        await self._check_learner(name)
        record = await self._store.reset_bandit(name, request_id=request_id or self._new_id())
        await self._models.follow(name)
        return record

    async def delete_bandit(self, name: BanditName) -> None:
        """Remove a bandit with all that it learned."""
        await self._store.delete_bandit(name)

    async def upsert_items(self, name: BanditName, items: Sequence[Item], mask: ItemMask = WHOLE_ITEMS) -> int:
        """Add items, or change what a mask names of them; return how many the bandit has, retired ones not counted.

        What is overdue is closed before, so that places of retired items whose slates have ended can be taken back.
        """
        if mask.features or any(item.features.values for item in items):
            schema = (await self._store.get_bandit(name)).settings.item_schema
            items, mask = take_items(schema, items), take_mask(schema, mask)
        await self._check_learner(name)
        await self._models.expire(name)
        await self._check_quotas(name, items if mask.creates else ())
        record = await self._store.change_items(name, upserted=items, retired=(), mask=mask)
        return await self._await_followers(name, record)

    async def retire_items(self, name: BanditName, item_ids: Sequence[str]) -> int:
        """Take items out for good; return how many the bandit has, retired ones not counted."""
        await self._check_learner(name)
        return await self._await_followers(name, await self._store.change_items(name, upserted=(), retired=item_ids))

    async def list_items(self, name: BanditName, *, after: str, limit: int) -> Sequence[Item]:
        """Return up to `limit` items that are not retired and whose id sorts after `after`, by id."""
        known = await self._store.list_items(name)
        first = bisect_right(known, after.encode(), key=lambda item: item.item_id.encode())
        return known[first : first + limit]

    async def import_rows(self, name: BanditName, sent: RowsOfImport) -> ImportReceipt:
        """Take in slates that were shown elsewhere; see `topk_bandit.bandits.imports`."""
        return await import_rows(self._store, self._models, name, sent, quotas=self._quotas)

    async def find_import(self, name: BanditName, import_id: str) -> ImportProgress:
        """Return how far an import is; nothing of it is there before its first part."""
        return await self._store.find_import(name, import_id)

    async def stats(self, name: BanditName) -> BanditStats:
        """Return where a bandit stands."""
        with suppress(ExhaustedError):  # a full store ends no slate, and can be read
            await self._models.expire(name)
        record = await self._store.get_bandit(name)
        model, damage = await self._models.follow_as_far_as_possible(name)
        digests, shares = await asyncio.to_thread(lambda: (digests_of(model), _find_shares(model)))
        store_bytes, reach = await self._measure(name), await self._logs.find_reach(name)
        limit = self._models.budget.model_bytes
        sizes = {"model_bytes": limit, "store_bytes": store_bytes}
        return _make_stats(record, model, digests, shares, reach, damage=damage, **sizes)

    async def _measure(self, name: BanditName) -> int:
        """Return what a bandit takes in the store; 0 for a login that may not ask."""
        try:
            return (await self._store.measure_bandit(name)).log_bytes
        except NotPermittedError:
            return 0

    async def _check_learner(self, name: BanditName) -> None:
        """Raise what keeps the model from its log's end, before anything is written.

        No model would learn of it, and no slate could be recorded after a change of items that none knows.
        """
        await self._models.follow(name)

    async def _check_quotas(self, name: BanditName, items: Sequence[Item]) -> None:
        """Refuse items beyond the tenant's quota; those that are there can be changed while its logs have space."""
        if self._quotas.limit(name.tenant, Quota.ITEMS) == UNLIMITED:
            new = 0
        else:
            known = (await self._models.follow(name)).items
            new = len(known.find_unknown(list({item.item_id for item in items})))
        await self._quotas.check(name.tenant, {Quota.ITEMS: new, Quota.LOG_BYTES: 1})

    def _check_item_schema(self, settings: BanditSettings) -> None:
        check_item_schema(settings, most_bytes=int(ITEM_FEATURES_SHARE * self._models.budget.model_bytes))

    async def _resolve_prior(self, name: BanditName, settings: BanditSettings) -> tuple[BanditSettings, Prior | None]:
        """Return the settings with the digest of the prior they name, and the prior; None if it was taken before."""
        if settings.prior_study:
            check_kernel(settings)
        if not settings.prior_study or settings.prior_digest:
            return settings, None
        try:
            prior = await self._priors.prior(name.tenant, settings.prior_study, context_dim=settings.context_dim)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(FIELD, error.problem) from error
        check_prior(prior, settings, most_bytes=int(PRIOR_SHARE * self._models.budget.model_bytes))
        return replace(settings, prior_digest=prior_digest(prior)), prior

    async def _await_followers(self, name: BanditName, record: BanditRecord) -> int:
        """Wait until every follower that is heard of knows a change of the items; return how many items there are.

        A slate of an older model is not recorded in any case. The wait is for slates that can't be recorded: a follower
        that loses the store afterwards goes on from a model that knows the change.
        """
        model = self._models.peek_model(name)
        if model is None or model.items_position < record.items_position:
            model = await self._models.follow(name)
        while await self._store.slowest_follower(name, heard_within_ms=FOLLOWER_SILENCE_MS) < record.items_position:
            await asyncio.sleep(FOLLOWER_PAUSE_SECONDS)
        return model.items.size


def _find_shares(model: Model) -> FeatureShares:
    of_contexts = None if model.encoder is None else model.encoder.schema
    of_items = None if model.item_features is None else model.item_features.encoder.schema
    return find_shares(model.state.posterior, of_contexts, of_items)


def _make_stats(
    record: BanditRecord,
    model: Model,
    digests: Digests,
    shares: FeatureShares,
    reach: LogReach,
    *,
    damage: str,
    model_bytes: int,
    store_bytes: int,
) -> BanditStats:
    state, tally = model.state, model.tally
    posterior = state.posterior
    return BanditStats(
        log_position=max(record.log_position, model.version),
        model_version=model.version,
        recommendations=tally.recommendations,
        observations=state.observations,
        imported=state.imported,
        forgotten=state.forgotten,
        defaults=tally.defaults + tally.aside_defaults,
        expirations=tally.expirations,
        late_rewards=record.late_rewards,
        clamped_rewards=record.clamped_rewards,
        lost_events=record.lost_events,
        lost_rewards=record.lost_rewards,
        pending=model.open_slates,
        inactive=tally.inactive,
        lapsed=tally.lapsed,
        shown_otherwise=tally.shown_otherwise,
        corrected=tally.voided + tally.amended + tally.missed_corrections,
        missed_corrections=tally.missed_corrections,
        items=model.items.size,
        available_items=len(model.items.available_places),
        places=posterior.kernel.n_items,
        passed_over=tally.passed_over,
        unplaced_rewards=tally.unlearned,
        posterior_rows=posterior.n_rows,
        pending_rows=posterior.n_pending,
        reward_sum=tally.reward_sum,
        mean_reward=model.mean_reward,
        regret_bound_sum=model.regret_sums.bound,
        estimated_regret_sum=model.regret_sums.estimated,
        explored=tally.explored,
        hyperparameters=_describe_hyperparameters(model),
        outliers=state.counted.wild_rewards,
        outlier_contexts=state.counted.wild_contexts,
        spread_factor=state.spread_factor,
        has_reward_range=model.settings.reward_range is not None,
        selection_share=model.selection_share,
        reward_times=model.reward_times,
        shadow=describe_shadow(model),
        lift=describe_lift(model, by_day=True),
        damage=damage,
        noticed_changes=state.changes,
        set_aside=tally.set_aside,
        snapshot_position=record.snapshot_position,
        memory_bytes=model.memory_bytes,
        memory_limit_bytes=model_bytes,
        store_bytes=store_bytes,
        log_digest=digests.log,
        posterior_digest=digests.posterior,
        arithmetic=digests.arithmetic,
        context_features=_describe_features(model, shares),
        item_features=()
        if model.item_features is None
        else _describe_records(model.item_features.encoder, shares.of_items),
        log_reach=reach,
        rules=tuple(map(describe_declared, model.settings.rules)),
        exposures=describe_exposures(model.exposures),
        conservative=describe_conservative(model),
    )


def _describe_hyperparameters(model: Model) -> HyperparameterStats:
    state, posterior = model.state, model.state.posterior
    shape = posterior.kernel.shape
    return HyperparameterStats(
        noise_variance=posterior.amplitude * posterior.noise_variance,
        prior_variance=posterior.amplitude * (1.0 + state.shared),
        prior_slope=posterior.slope,
        rank_weight_power=_find_rank_weight_power(model),
        pair_scale=1.0 if shape is None else shape.pair_scale,
        constant_variance=posterior.kernel.constant,
        shared_context=state.shared,
        content_share=state.content_share,
        edges_reached=state.edges_reached,
    )


def _describe_features(model: Model, shares: FeatureShares) -> tuple[FeatureStats, ...]:
    """Return what was seen of the features of contexts, or of contexts that have none."""
    norms, encoder = model.state.norm_range or NO_VALUES, model.encoder
    if encoder is None:
        return (
            FeatureStats(
                "", 0.0, norms.middle, frozen=False, clamped_count=norms.outliers, unknown_count=0, missing_count=0
            ),
        )
    return _describe_records(encoder, shares.of_contexts)


def _describe_records(encoder: Encoder, shares: tuple[float, ...]) -> tuple[FeatureStats, ...]:
    each = zip(encoder.schema, encoder.records, shares, strict=True)
    return tuple(replace(record.stats(feature.name), share=share) for feature, record, share in each)


def _find_rank_weight_power(model: Model) -> float:
    shape = model.state.posterior.kernel.shape
    if shape is not None:
        return shape.power
    return 0.0 if model.settings.kernel is Kernel.CONVOLUTIONAL else 1.0
