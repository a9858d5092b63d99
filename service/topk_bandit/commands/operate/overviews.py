"""Bandits at a glance, and one over its life, as rows of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_bandit.client import BanditOverview, HistoryPoint

__all__ = ["HISTORY", "OVERVIEW", "history_row", "overview_row"]

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
HISTORY = ("until", "slates", "rewards", "mean reward", "explored", "joined", "regret", "at most")
_MIB = 2**20


def overview_row(overview: BanditOverview) -> tuple[object, ...]:
    """Return the cells of a bandit; those of its model are empty if it is not in memory."""
    glance = overview.glance
    of_model: tuple[object, ...] = (None,) * 8
    if glance is not None:
        slates = glance.recommendation_count
        of_model = (
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
    return f"{overview.tenant}/{overview.bandit}", created, *counts, *of_model


def history_row(point: HistoryPoint) -> tuple[object, ...]:
    """Return the cells of an interval: counts and regret are totals, the mean and the shares are its own."""
    return (
        f"{point.end_time:%Y-%m-%d %H:%M:%S}",
        point.recommendation_count,
        point.observation_count,
        None if point.mean_reward is None else f"{point.mean_reward:.4g}",
        _share(point.explored_share),
        _share(point.join_rate),
        f"{point.estimated_regret_sum:.4g}",
        f"{point.regret_bound_sum:.4g}",
    )


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"
