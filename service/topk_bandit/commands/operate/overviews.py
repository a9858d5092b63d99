"""Bandits at a glance, as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_bandit.client import BanditOverview

__all__ = ["OVERVIEW", "overview_row"]

OVERVIEW = (
    "bandit",
    "created",
    "events",
    "pending",
    "late",
    "slates",
    "rewards",
    "mean reward",
    "regret",
    "at most",
    "explored",
    "items",
    "MiB",
)
_MIB = 2**20


def overview_row(overview: BanditOverview) -> tuple[object, ...]:
    """Return the cells of a bandit; those that its model tells are empty if it is not in memory."""
    glance = overview.glance
    told: tuple[object, ...] = (None,) * 8
    if glance is not None:
        slates = glance.recommendation_count
        told = (
            slates,
            glance.observation_count,
            f"{glance.mean_reward:.4g}",
            f"{glance.estimated_regret_sum:.4g}",
            f"{glance.regret_bound_sum:.4g}",
            f"{glance.explored_count / slates if slates else 0.0:.1%}",
            glance.item_count,
            f"{glance.memory_bytes / _MIB:.1f}",
        )
    created = f"{overview.create_time:%Y-%m-%d}"
    counts = overview.log_position, overview.pending_count, overview.late_reward_count
    return f"{overview.tenant}/{overview.bandit}", created, *counts, *told
