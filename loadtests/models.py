"""Models as the service holds them, without a store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.model import Model, Tally
from topk_bandit.domain.bandits import BanditSettings, Item, Kernel
from topk_bandit.process.settings import Settings
from topk_bandit.store.events import BanditCreated, ItemsChanged, LoggedEvent

if TYPE_CHECKING:
    from topk_bandit.learning.policy import State

__all__ = ["bandit_settings", "model_of"]


def bandit_settings(*, n_items: int, slate_size: int, context_dim: int) -> BanditSettings:
    """Return the settings of a bandit with the service's defaults, whose slates wait an hour for their reward."""
    return BanditSettings(
        item_capacity=n_items,
        slate_size=slate_size,
        context_dim=context_dim,
        kernel=Kernel.ADAPTIVE,
        exploration=Settings().default_exploration,
        reward_wait_ms=3_600_000,
        default_reward=None,
    )


def model_of(state: State) -> Model:
    """Return a bandit at a checkpoint with this state, which was just refit; all items are on its shelves."""
    kernel, limits = state.posterior.kernel, state.limits
    # What all contexts share is one number more, which no caller sends.
    context_dim = state.posterior.context_dim - bool(state.shared)
    settings = bandit_settings(n_items=kernel.n_items, slate_size=kernel.slate_size, context_dim=context_dim)
    model = begin("bench", LoggedEvent(1, 1, BanditCreated(settings)), limits=limits)
    items = ItemsChanged(upserted=tuple(Item(f"item-{index}") for index in range(kernel.n_items)))
    tally = Tally(recommendations=state.observations + state.unrewarded + state.posterior.n_pending)
    return replace(fold(model, LoggedEvent(2, 2, items)), state=state, tally=tally, since_checkpoint=0)
