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
        """Return how many pairs a second so many workers of one core answer at most that all follow all of them."""
        return 1.0 / (self.following + self.asked / workers)


MEASURED = Costs(
    recommend=0.00685,
    reward=0.00200,
    answer=0.00018,
    refuse=0.00036,
    look=0.00198,
    shown=0.00049,
    rewarded=0.00022,
    refit=0.1096,
    rewards_between=128,
    load=0.0220,
    store_call=0.00034,
    sync=0.00102,
)
"""50 items, slates of 6, contexts of 5 numbers, as many rows as the default memory allows.

Of an empty call it is assumed that half comes after the work, and that a call that is refused costs one.
"""

MEASURED_ON = (
    "23 November 2026, `python loadtests/bench.py --only fleet-costs`, two cores of a cloud machine (AMD EPYC) that "
    "others used at the same time: the least of five turns"
)
