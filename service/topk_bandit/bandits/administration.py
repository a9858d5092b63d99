"""What operators and shops set up: bandits and their items."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.priors import FIELD, check_prior
from topk_bandit.domain.bandits import BanditStats, Kernel
from topk_bandit.domain.errors import ConflictError, InvalidArgumentError, UnavailableError
from topk_bandit.store.codec import prior_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topk_bandit.bandits.digests import Digests
    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.priors import Priors
    from topk_bandit.bandits.residents import Learner
    from topk_bandit.bandits.use_cases import SettingsChange
    from topk_bandit.domain.bandits import BanditName, BanditSettings, Exploration, Item, Prior
    from topk_bandit.store.log import BanditRecord, ItemRecord, Store

__all__ = ["Bandits"]

FOLLOWER_SILENCE_MS = 3000
"""A follower not heard of for so long is taken for dead; live ones are heard of every second."""

FOLLOWER_PAUSE_SECONDS = 0.005

PRIOR_SHARE = 3 / 16
"""Of the memory that a bandit may take, the most that a prior may."""

UPDATES_PER_CALL = 16
"""How often a call reads the settings again because somebody else changed them meanwhile, before it gives up."""


class Bandits:
    """The use cases of `topk_bandit.bandits.use_cases.BanditUseCases`.

    Parameters
    ----------
    store
        Where bandits are kept.
    learner
        Where models come from.
    default_exploration
        What a bandit explores with that was created without saying.
    quota
        How many bandits a tenant may have.
    new_id
        Returns a fresh incarnation.
    priors
        Where the priors come from that settings name.
    """

    def __init__(
        self,
        store: Store,
        learner: Learner,
        *,
        default_exploration: Exploration,
        quota: int,
        new_id: Callable[[], str],
        priors: Priors,
    ) -> None:
        self._store = store
        self._priors = priors
        self._learner = learner
        self._default_exploration = default_exploration
        self._quota = quota
        self._new_id = new_id

    @property
    def default_exploration(self) -> Exploration:
        """See `BanditUseCases.default_exploration`."""
        return self._default_exploration

    async def create_bandit(self, name: BanditName, settings: BanditSettings) -> BanditRecord:
        """See `BanditUseCases.create_bandit`."""
        taken, prior = await self._with_prior(name, settings)
        try:
            return await self._store.create_bandit(
                name, taken, incarnation=self._new_id(), quota=self._quota, prior=prior
            )
        except ConflictError:
            # The study may have learned more since the bandit was created with it.
            known = await self._store.get_bandit(name)
            if replace(taken, prior_digest=known.settings.prior_digest) == known.settings:
                return known
            raise

    async def get_bandit(self, name: BanditName) -> BanditRecord:
        """See `BanditUseCases.get_bandit`."""
        return await self._store.get_bandit(name)

    async def list_bandits(self, tenant: str, *, after: str, limit: int) -> Sequence[BanditRecord]:
        """See `BanditUseCases.list_bandits`."""
        return await self._store.list_bandits(tenant, after=after, limit=limit)

    async def update_bandit(self, name: BanditName, change: SettingsChange) -> BanditRecord:
        """See `BanditUseCases.update_bandit`; what is overdue is closed on the terms that were in place.

        When it returns, this worker decides with the new settings; the others hear of them within a moment.
        """
        await self._learner.expire(name)
        for _ in range(UPDATES_PER_CALL):
            record = await self._store.get_bandit(name)
            settings, prior = await self._with_prior(name, change(record.settings))
            try:
                updated = await self._store.update_settings(name, settings, revision=record.revision, prior=prior)
            except ConflictError:
                continue
            await self._learner.refreshed(name)
            return updated
        raise UnavailableError(f"the settings of {name} change faster than they can be updated")

    async def delete_bandit(self, name: BanditName) -> None:
        """See `BanditUseCases.delete_bandit`."""
        await self._store.delete_bandit(name)

    async def upsert_items(self, name: BanditName, items: Sequence[Item]) -> int:
        """See `BanditUseCases.upsert_items`."""
        return await self._changed(name, await self._store.change_items(name, upserted=items, retired=()))

    async def retire_items(self, name: BanditName, item_ids: Sequence[str]) -> int:
        """See `BanditUseCases.retire_items`."""
        return await self._changed(name, await self._store.change_items(name, upserted=(), retired=item_ids))

    async def list_items(self, name: BanditName, *, after: str, limit: int) -> Sequence[ItemRecord]:
        """See `BanditUseCases.list_items`."""
        known = (item for item in await self._store.list_items(name) if not item.retired)
        later = (item for item in known if item.item_id.encode() > after.encode())
        return list(islice(sorted(later, key=lambda item: item.item_id.encode()), limit))

    async def stats(self, name: BanditName) -> BanditStats:
        """See `BanditUseCases.stats`."""
        await self._learner.expire(name)
        record = await self._store.get_bandit(name)
        model = await self._learner.refreshed(name)
        digests = await asyncio.to_thread(digests_of, model)
        return _stats(record, model, digests, model_bytes=self._learner.model_bytes)

    async def _with_prior(self, name: BanditName, settings: BanditSettings) -> tuple[BanditSettings, Prior | None]:
        """Return the settings with the prior that they name, if it is not taken yet, and that prior."""
        if not settings.prior_study or settings.prior_digest:
            return settings, None
        try:
            prior = await self._priors.prior(name.tenant, settings.prior_study, context_dim=settings.context_dim)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(FIELD, error.problem) from error
        check_prior(prior, settings, most_bytes=int(PRIOR_SHARE * self._learner.model_bytes))
        return replace(settings, prior_digest=prior_digest(prior)), prior

    async def _changed(self, name: BanditName, record: BanditRecord) -> int:
        """Return how many items there are, once every follower that is heard of knows of the change.

        A slate of an older model is not recorded in any case. The wait is for the slates that can't be recorded: a
        follower that loses the store afterwards goes on from a model that knows of the change.
        """
        model = self._learner.published(name)
        if model is None or model.items_position < record.items_position:
            model = await self._learner.refreshed(name)
        while await self._store.slowest_follower(name, heard_within_ms=FOLLOWER_SILENCE_MS) < record.items_position:
            await asyncio.sleep(FOLLOWER_PAUSE_SECONDS)
        return model.catalogue.size


def _stats(record: BanditRecord, model: Model, digests: Digests, *, model_bytes: int) -> BanditStats:
    state, tally = model.state, model.tally
    posterior = state.posterior
    return BanditStats(
        log_position=max(record.log_position, model.version),
        model_version=model.version,
        recommendations=tally.recommendations,
        observations=state.observations,
        defaults=tally.defaults,
        expirations=tally.expirations,
        late_rewards=record.late_rewards,
        pending=len(model.open),
        items=model.catalogue.size,
        available_items=len(model.catalogue.available),
        posterior_rows=posterior.n_rows,
        pending_rows=posterior.n_pending,
        reward_sum=tally.reward_sum,
        mean_reward=tally.reward_sum / state.observations if state.observations else 0.0,
        regret_bound_sum=tally.regret_bound_sum,
        estimated_regret_sum=tally.estimated_regret_sum,
        explored=tally.explored,
        noise_variance=posterior.amplitude * posterior.noise_variance,
        prior_variance=posterior.amplitude,
        prior_slope=posterior.slope,
        rank_weight_power=_rank_weight_power(model),
        snapshot_position=record.snapshot_position,
        memory_bytes=model.memory_bytes,
        memory_limit_bytes=model_bytes,
        log_digest=digests.log,
        posterior_digest=digests.posterior,
        arithmetic=digests.arithmetic,
    )


def _rank_weight_power(model: Model) -> float:
    chosen = model.state.posterior.kernel.power
    if chosen is not None:
        return chosen
    return 0.0 if model.settings.kernel is Kernel.CONVOLUTIONAL else 1.0
