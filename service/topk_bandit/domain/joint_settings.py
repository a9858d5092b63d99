"""Settings of a bandit that go together: what neither of them is wrong by alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import width_of
from topk_bandit.domain.stages import check_baseline_size

if TYPE_CHECKING:
    from topk_bandit.domain.bandits import BanditSettings

__all__ = ["check_together"]


def check_together(settings: BanditSettings, *, path: str) -> None:
    """Check that a default reward could be posted, and that rewards are provisional before they are final.

    The kernel has something to compare: two items, or with the weighted one two of a slate. A guardrail has a control
    group to compare with, a baseline slate has the size of slates, all slates of a conservative bandit are shown, and
    contexts are as wide as their schema.

    Parameters
    ----------
    path
        Where the settings are, for errors: a call's ``bandit``, or ``settings`` of an archive.

    Raises
    ------
    InvalidArgumentError
        On the setting below `path` that does not go with another.
    """
    if settings.item_capacity < 2:
        raise InvalidArgumentError(
            f"{path}.item_capacity", "must be 2 or more: with one item there is nothing to learn"
        )
    if settings.kernel is Kernel.WEIGHTED and settings.slate_size < 2:
        problem = "must be 2 or more: the weighted Kendall kernel compares the items of a slate"
        raise InvalidArgumentError(f"{path}.slate_size", problem)
    check_baseline_size(f"{path}.baseline_item_ids", settings.baseline_item_ids, slate_size=settings.slate_size)
    if settings.guardrail_margin is not None and not settings.control_share:
        raise InvalidArgumentError(f"{path}.guardrail_margin", "needs a control_share, to compare with")
    if settings.conservative_share and settings.requires_activation:
        problem = "does not go with requires_activation: a slate that was never shown would count as one that lost"
        raise InvalidArgumentError(f"{path}.conservative_share", problem)
    after_ms = settings.provisional_after_ms
    if after_ms is not None and after_ms >= settings.reward_wait_ms:
        problem = f"must be less than the bandit's reward_wait, {settings.reward_wait_ms} milliseconds, not {after_ms}"
        raise InvalidArgumentError(f"{path}.provisional_after", problem)
    default, taken = settings.default_reward, settings.reward_range
    if default is not None and taken is not None and not taken.low <= default <= taken.high:
        problem = f"must be from {taken.low!r} to {taken.high!r}, the bandit's reward_range, not {default!r}"
        raise InvalidArgumentError(f"{path}.default_reward", problem)
    if settings.context_schema is not None and width_of(settings.context_schema) != settings.context_dim:
        raise InvalidArgumentError(f"{path}.context_schema", f"does not take {settings.context_dim} numbers")
