"""What a pair of a Recommend and its Reward costs a fleet, as it was measured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MEASURED", "MEASURED_ON", "Costs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of one core, but for `sync`, which is a wait for a disk, and `rewards_between`, a count.

    Attributes
    ----------
    recommend, reward
        A call in the worker that is asked, from its first byte to its last; following its event is apart.
    answer
        The part of either that comes after the store has answered.
    refuse
        A call that is refused.
    look
        Reading what a log has grown by, in each worker that follows it; folding is apart.
    shown, rewarded
        Folding a slate that was shown, and a reward.
    refit
        A checkpoint of the model, beside the fold, once in `rewards_between` rewards.
    load
        A model's return from its snapshot.
    store_call
        One call in the store.
    sync
        The wait of one group of writes for the disk.
    """

    recommend: float
    reward: float
    answer: float
    refuse: float
    look: float
    shown: float
    rewarded: float
    refit: float
    rewards_between: int
    load: float
    store_call: float
    sync: float

    @property
    def following(self) -> float:
        """What following one pair takes at least: any number of events may share a look."""
        return self.shown + self.rewarded + self.refit / self.rewards_between

    @property
    def asked(self) -> float:
        """What one pair takes in the worker that is asked, beside following it."""
        return self.recommend + self.reward

    def most_pairs(self, workers: int) -> float:
        """Return how many pairs a second of one bandit so many workers of one core answer at most."""
        return 1.0 / (self.following + self.asked / workers)
