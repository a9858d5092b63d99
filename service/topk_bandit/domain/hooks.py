"""Where telemetry attaches: no-op methods that the service calls, and that one subclass turns into metrics.

A hook must be cheap, must not raise, and may be called from any thread. Durations are seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from topk_bandit.domain.slates import Recommendation

__all__ = ["Hooks", "ModelFigures"]


class ModelFigures(NamedTuple):
    """What is shown of a model.

    Attributes
    ----------
    observations, pending, rows
        How many rewards it has learned, slates wait for theirs, and rows its posterior has.
    memory_bytes
        What it takes in memory, about.
    outlier_share
        Which share of the latest rewards is not learned.
    spread_factor
        By how much its spreads are widened.
    missing_rewards
        The expected number of rewards of the slates that were given out since the newest reward.
    selection_share
        Which share of the slates that ended is not learned, though all rewards that are learned are other than zero.
    settled_seconds
        After how long 99 % of what slates end up with has come, 0 while that is not known.
    """

    observations: int
    pending: int
    rows: int
    memory_bytes: int
    outlier_share: float
    spread_factor: float
    missing_rewards: float
    selection_share: float
    settled_seconds: float


class Hooks:
    """Hooks that do nothing."""

    def decided(self, recommendation: Recommendation, seconds: float) -> None:
        """Note that a slate was chosen, in `seconds` of computing: contraction, search and draw, without the store."""

    def recommended(self, recommendation: Recommendation, *, in_reward_units: bool) -> None:
        """Note that a slate was recorded, or could not be (degraded), and is given out; repeats are left out.

        Its regrets have no unit before two rewards differ.
        """

    def rules_clashed(self) -> None:
        """Note that a request was refused because no slate keeps its rules."""

    def encoded(self, *, clamped: int, unknown: int) -> None:
        """Note how many features of a recorded request were clamped or unknown, or a context too long."""

    def rewarded(self, outcome: str, value: float) -> None:
        """Note what became of a posted reward.

        `outcome` is a `RewardOutcome`, "not_found", "conflict", "invalid" or "unavailable".
        """

    def acknowledged(self, durability: str) -> None:
        """Note what a reward's writes were acknowledged with.

        It is "memory", "fsync" or "replicated", or "missed" for what was written, and not as durably as was asked for.
        """

    def learned(self, recommendation_id: str, reward: float, delay_seconds: float) -> None:
        """Note that this worker's learner folded in a reward (defaults left out), so long after its recommendation."""

    def expired(self, count: int) -> None:
        """Note that this worker closed `count` recommendations whose deadline had passed without a reward."""

    def defaulted(self) -> None:
        """Note that this worker's learner folded in a default reward: a slate's wait was over, and it had none."""

    def folded(self, events: int, seconds: float) -> None:
        """Note that so many events of one log were folded into its model, in `seconds` of computing."""

    def refitted(self, seconds: float) -> None:
        """Note that folding one event ended in a refit, after `seconds` of computing."""

    def followed(self, bandit: str, lag_events: int, waiting_seconds: float) -> None:
        """Note that a bandit's log was read: before its events are folded, and after.

        Its model lacks the last `lag_events` of it, of which the oldest was written `waiting_seconds` ago.
        """

    def log_replaced(self, bandit: str) -> None:
        """Note that a bandit's log is not the one that was followed: shorter than the model, or with other events."""

    def events_lost(self, bandit: str, *, events: int, rewards: int) -> None:
        """Note what is gone of a bandit's log, once for all workers; `rewards` of the `events` were rewards."""

    def posterior(self, bandit: str, figures: ModelFigures) -> None:
        """Note what a model's figures are now."""

    def compared(self, bandit: str, *, shortfall: float, has_odd_groups: bool) -> None:
        """Note what a bandit's group earns beside its control group: which share less for sure, 0 if it may be none."""

    def guarded(self) -> None:
        """Note that a guardrail of this worker took a bandit off."""

    def doubted(self, kind: str, count: int) -> None:
        """Note rewards that are not learned, because they are wild, "reward", or their contexts, "context"."""

    def bounded(self, model_bytes: int) -> None:
        """Note what one model may take, once, before any model is there."""

    def rested(self, reason: str) -> None:
        """Note that a model leaves memory until it is asked for: "idle", or "memory" when others need the space."""

    def forgotten(self, bandit: str) -> None:
        """Note that this worker holds no model of the bandit any more."""

    def backed(self, bandit: str, *, unsaved_events: int, age_seconds: float, n_bytes: int) -> None:
        """Note a bandit's newest snapshot, as far as this worker knows: how many events its model has beyond it.

        Without a snapshot all of the model's events are unsaved, and age and bytes are 0.
        """

    def snapshot_saved(self) -> None:
        """Note that this worker saved a snapshot that no other had saved before."""

    def snapshot_failed(self, bandit: str) -> None:
        """Note a snapshot that did not verify or could not be saved; a store that is away is no such failure."""

    def cold_written(self, events: int) -> None:
        """Note that this worker wrote so many events to the cold log."""

    def cold_failed(self) -> None:
        """Note an attempt to write to the cold log that failed."""

    def cold_missed(self, events: int) -> None:
        """Note events that were trimmed from a log, and are not in the cold log: it could not be written for long."""

    def fold_failed(self, bandit: str) -> None:
        """Note that an event of the bandit's log can't be folded: its model stays as it was, and it is tried again."""

    def diverged(self, bandit: str) -> None:
        """Note that this worker's model is not the one that another kept for the same log position, and should be."""

    def answered(self, outcome: str) -> None:
        """Note what became of an answer: an `AnswerOutcome`, "not_found", "conflict", "invalid" or "unavailable"."""

    def designed(self, outcome: str, seconds: float) -> None:
        """Note that this worker's attempt at a design ended, so long after it began.

        `outcome` is where the design stands then, a `DesignState`, or "abandoned" when the attempt was cancelled, the
        study deleted, or the lease somebody else's.
        """

    def store_called(self, operation: str, seconds: float, *, failed: bool) -> None:
        """Note one call of the store."""
