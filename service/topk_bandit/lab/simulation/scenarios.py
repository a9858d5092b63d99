"""What happens around a shop: when rewards come, which items there are, and how preferences move."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError

if TYPE_CHECKING:
    from topk_bandit.learning.environments import Shop

__all__ = [
    "AllItems",
    "Batches",
    "Between",
    "ComingAndGoing",
    "Constant",
    "Drift",
    "Feedback",
    "Geometric",
    "Incomplete",
    "PreferenceChange",
    "Scenario",
    "Stock",
    "SuddenChange",
    "Wait",
]

FloatArray = NDArray[np.float64]


class Feedback(NamedTuple):
    """When something is heard of a slate, and what.

    Attributes
    ----------
    round_number
        It is heard before the choice of this round.
    rewarded
        Whether its reward came.
    default
        If not, what is taken for its reward; None for nothing.
    """

    round_number: int
    rewarded: bool = True
    default: float | None = None


class Wait(Protocol):
    """How long rewards are waited for."""

    def feedback(self, number: int, rng: np.random.Generator) -> Feedback:
        """Return when something is heard of the slate of round `number`."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Every reward comes `rounds` rounds late: 0 before the next choice."""

    rounds: int = 0

    def __post_init__(self) -> None:
        _check("rounds", self.rounds, 0)

    def feedback(self, number: int, rng: np.random.Generator) -> Feedback:  # noqa: ARG002 - as of the protocol
        """See `Wait.feedback`."""
        return Feedback(number + 1 + self.rounds)


@dataclass(frozen=True, slots=True)
class Batches:
    """Rewards come together, after every `size` rounds (paper, Section 5)."""

    size: int = 5

    def __post_init__(self) -> None:
        _check("size", self.size, 1)

    def feedback(self, number: int, rng: np.random.Generator) -> Feedback:  # noqa: ARG002 - as of the protocol
        """See `Wait.feedback`."""
        return Feedback((number // self.size + 1) * self.size)


@dataclass(frozen=True, slots=True)
class Geometric:
    """Rewards come late by a geometrically distributed number of rounds, from 0, with a mean."""

    mean: float

    def __post_init__(self) -> None:
        _check("mean", self.mean, 0.0)

    def feedback(self, number: int, rng: np.random.Generator) -> Feedback:
        """See `Wait.feedback`."""
        return Feedback(number + int(rng.geometric(1.0 / (1.0 + self.mean))))


@dataclass(frozen=True, slots=True)
class Between:
    """Rewards come late by any number of rounds from `least` to `most`, each as likely."""

    least: int
    most: int

    def __post_init__(self) -> None:
        _check("least", self.least, 0)
        _check("most", self.most, self.least)

    def feedback(self, number: int, rng: np.random.Generator) -> Feedback:
        """See `Wait.feedback`."""
        return Feedback(number + 1 + int(rng.integers(self.least, self.most + 1)))


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Some rewards never come, and none is waited for longer than `deadline` rounds.

    Attributes
    ----------
    wait
        When those come that do.
    missing
        Share that never comes.
    default
        What is taken for a reward that did not come in time; None for nothing.
    """

    wait: Wait
    missing: float
    deadline: int
    default: float | None

    def __post_init__(self) -> None:
        _check("missing", self.missing, 0.0, 1.0)
        _check("deadline", self.deadline, 0)

    def feedback(self, number: int, rng: np.random.Generator) -> Feedback:
        """See `Wait.feedback`."""
        lost, feedback = rng.random() < self.missing, self.wait.feedback(number, rng)
        last = number + 1 + self.deadline
        if lost or feedback.round_number > last:
            return Feedback(last, rewarded=False, default=self.default)
        return feedback


class Stock(Protocol):
    """Which items can be shown."""

    def eligible(self, number: int, n_items: int) -> NDArray[np.int32]:
        """Return the items that can be shown in a round, ascending."""
        ...


@dataclass(frozen=True, slots=True)
class AllItems:
    """All of them, always."""

    def eligible(self, number: int, n_items: int) -> NDArray[np.int32]:  # noqa: ARG002 - as of the protocol
        """See `Stock.eligible`."""
        return np.arange(n_items, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class ComingAndGoing:
    """A window of `size` items that moves on by one item every `every` rounds: the oldest goes, a new one comes."""

    size: int
    every: int

    def __post_init__(self) -> None:
        _check("size", self.size, 1)
        _check("every", self.every, 1)

    def eligible(self, number: int, n_items: int) -> NDArray[np.int32]:
        """See `Stock.eligible`; after the last item the first comes again.

        Raises
        ------
        InvalidArgumentError
            Naming ``size``: there are not so many items.
        """
        _check("size", self.size, 1, n_items)
        first = number // self.every
        return np.sort((first + np.arange(self.size)) % n_items).astype(np.int32)


class PreferenceChange(Protocol):
    """What the customers like, round by round."""

    def change_preferences(self, preferences: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
        """Return the preferences (U, C) of round `number` from those before; the same array if none changed."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """Preferences wander: every `every` rounds each moves a step towards a draw from `population`.

    ::

        preference' = mean + sqrt(1 - step^2) (preference - mean) + step (draw - mean)

    with the population's mean, so that preferences keep the population's mean and covariance.

    Attributes
    ----------
    population
        User factors, shape (M, C).
    step
        In [0, 1].
    """

    population: FloatArray = field(repr=False)
    step: float
    every: int = 1

    def __post_init__(self) -> None:
        _check("step", self.step, 0.0, 1.0)
        _check("every", self.every, 1)

    def change_preferences(self, preferences: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
        """See `PreferenceChange.change_preferences`."""
        if number == 0 or number % self.every:
            return preferences
        mean = self.population.mean(axis=0)
        drawn = self.population[rng.integers(len(self.population), size=len(preferences))]
        return np.asarray(mean + math.sqrt(1.0 - self.step**2) * (preferences - mean) + self.step * (drawn - mean))


@dataclass(frozen=True, slots=True, eq=False)
class SuddenChange:
    """In round `at` the customers get the preferences of others, drawn from `population` (M, C) without replacement."""

    population: FloatArray = field(repr=False)
    at: int

    def __post_init__(self) -> None:
        _check("at", self.at, 0)

    def change_preferences(self, preferences: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
        """See `PreferenceChange.change_preferences`."""
        if number != self.at:
            return preferences
        if len(self.population) < len(preferences):
            raise InvalidArgumentError(
                "population", f"expected at least {len(preferences)} rows, got {len(self.population)}"
            )
        return np.asarray(self.population[rng.choice(len(self.population), size=len(preferences), replace=False)])


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """A shop, when its rewards come, which items it has, and how preferences change, if they do."""

    shop: Shop
    wait: Wait = field(default_factory=Constant)
    stock: Stock = field(default_factory=AllItems)
    preferences: PreferenceChange | None = None


def _check(name: str, value: float, least: float, most: float = math.inf) -> None:
    if not least <= value <= most:
        expected = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
        raise InvalidArgumentError(name, f"expected {expected}, got {value:g}")
