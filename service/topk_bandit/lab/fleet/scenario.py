"""A fleet and the traffic that it gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topk_bandit.lab.fleet.costs import Costs

__all__ = ["Chance", "Death", "Fleet", "Serving", "Traffic"]


class Serving(Enum):
    """Who serves a bandit.

    `EVERYONE` is several services that are all asked for each bandit. `APART` is as many services of one worker each,
    among which the shop divides its bandits: nobody takes over from one that is dead. `OWNERS` is how the workers of a
    service serve, but that passing a call on to the owner costs nothing.
    """

    EVERYONE = "every worker"
    APART = "services apart"
    OWNERS = "owners"


class Chance(Enum):
    """How long decisions take: all alike, or exponentially distributed."""

    NONE = "deterministic"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Workers, and the shards of their store.

    Attributes
    ----------
    cores
        Of each worker.
    serving
        With owners, a bandit that is asked for more often than `pairs_of_a_reader` has more than one.
    most_calls
        In the hand of a worker; of Recommends, and as many of Rewards.
    quantum
        So long a job computes before others of its worker have their turn; infinite: first come, first served.
    most_in_group
        So many writes share one sync of a shard at most; None: all that wait.
    gather, pause, longest_pause, idle
        As in `topk_bandit.bandits.residents`: how long a log is left alone after a look, how often it is looked at
        though nothing was heard of it, and when a model rests that nobody needs.
    model_bytes, worker_bytes
        What a model takes, and what all of a worker may take.
    retry
        How soon a reward that was not taken comes again.
    noticed, replaced
        How soon after a worker's death callers know of it, and how soon another one is in its place.
    network
        From a caller to a worker, or from a worker to a shard, and back.
    """

    costs: Costs
    workers: int
    cores: int = 1
    shards: int = 1
    serving: Serving = Serving.EVERYONE
    pairs_of_a_reader: float = 30.0
    most_calls: int = 32
    quantum: float = 0.002
    most_in_group: int | None = None
    gather: float = 0.025
    pause: float = 1.0
    longest_pause: float = 32.0
    idle: float = 600.0
    model_bytes: float = 3.3e6
    worker_bytes: float = 6144 * 2.0**20
    retry: float = 1.0
    noticed: float = 1.0
    replaced: float = 15.0
    network: float = 0.0005

    @property
    def models_of_a_worker(self) -> int:
        """How many models fit into a worker."""
        return int(self.worker_bytes // self.model_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Slates that are asked for at random times, and their rewards.

    Attributes
    ----------
    zipf
        Bandit number i is asked for in proportion to i^-zipf.
    reward_seconds
        How long after its slate each reward comes; infinite: none comes.
    seconds, settling
        How long traffic lasts; what is measured begins after `settling`.
    chance
        Of decisions.
    """

    pairs: float
    bandits: int
    zipf: float = 1.0
    reward_seconds: float = 2.0
    seconds: float = 60.0
    settling: float = 10.0
    chance: Chance = Chance.NONE

    @property
    def has_rewards(self) -> bool:
        """Whether slates are rewarded."""
        return math.isfinite(self.reward_seconds)


@dataclass(frozen=True, slots=True)
class Death:
    """A worker dies."""

    at: float
    worker: int
