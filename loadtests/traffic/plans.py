"""What is sent: phases, streams of customers, and when each of them comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topk_bandit.learning.environments import Shop

__all__ = ["Plan", "Stream", "Visit", "arrivals", "visits"]


@dataclass(frozen=True, slots=True)
class Stream:
    """Customers of one tenant, who come at random.

    Attributes
    ----------
    bandits
        Each customer asks one of them, any as likely as another.
    shop
        Whose customers they are. All of them come before one comes again, so that with enough of them each call has a
        context of its own.
    rates
        How many come in a second, for each phase of the plan.
    reward_after
        Seconds from an answer to its reward, in the mean: half of that to one and a half.
    """

    tenant: str
    bandits: tuple[str, ...]
    shop: Shop
    rates: tuple[float, ...]
    reward_after: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run of the generator.

    Attributes
    ----------
    address
        Of the service.
    seconds
        How long each phase lasts.
    seed
        What all that is random follows from.
    channels
        How many connections the calls take turns on.
    deadline
        Seconds that a call may take, from when it is sent.
    """

    address: str
    seconds: tuple[float, ...]
    streams: tuple[Stream, ...]
    seed: int
    channels: int = 4
    deadline: float = 5.0

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds)


@dataclass(frozen=True, slots=True)
class Visit:
    """A customer who is to come: seconds from the start, and all that is drawn beforehand."""

    due: float
    stream: int
    bandit: str
    customer: int
    reward_after: float
    seed: int


def arrivals(rates: Sequence[float], seconds: Sequence[float], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the times of a Poisson process whose rate is constant within each phase.

    Given how many arrivals a phase has, which is a Poisson number, their times are independent and uniform.
    """
    starts = np.cumsum([0.0, *seconds])
    phases = zip(rates, starts, starts[1:], strict=False)
    drawn = [rng.uniform(start, end, size=rng.poisson(rate * (end - start))) for rate, start, end in phases]
    return np.sort(np.concatenate(drawn))


def visits(plan: Plan) -> list[Visit]:
    """Draw all customers of a plan, in the order in which they come."""
    each = enumerate(np.random.default_rng(plan.seed).spawn(len(plan.streams)))
    return sorted((one for number, rng in each for one in _visits(plan, number, rng)), key=lambda one: one.due)


def _visits(plan: Plan, number: int, rng: np.random.Generator) -> Iterator[Visit]:
    stream = plan.streams[number]
    order = rng.permutation(len(stream.shop.customers))
    for place, due in enumerate(arrivals(stream.rates, plan.seconds, rng).tolist()):
        yield Visit(
            due=due,
            stream=number,
            bandit=f"tenants/{stream.tenant}/bandits/{stream.bandits[rng.integers(len(stream.bandits))]}",
            customer=int(order[place % len(order)]),
            reward_after=stream.reward_after * float(rng.uniform(0.5, 1.5)),
            seed=int(rng.integers(2**32)),
        )
