"""What a slate of some score earns: its expected reward, and rewards as customers give them.

Each is a growing function of the score, so that the slate with the best score has the best expected reward. Draws take
as much of the generator whatever the score is: policies that are compared meet the same luck.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clicks", "HeavyTailed", "Noisy", "Outcome", "Purchases", "level_for_mean"]

FloatArray = NDArray[np.float64]

_BISECTIONS = 60
_WIDEST_LEVEL = 30.0


class Outcome(Protocol):
    """From scores to rewards."""

    def mean(self, scores: FloatArray) -> FloatArray:
        """Return the expected rewards of scores."""
        ...

    def draw(self, score: float, rng: np.random.Generator) -> float:
        """Return a reward of a slate with this score."""
        ...


@dataclass(frozen=True, slots=True)
class Noisy:
    """Offset + scale * score, with normal noise of a standard deviation."""

    offset: float = 0.0
    scale: float = 1.0
    noise: float = 0.0

    def mean(self, scores: FloatArray) -> FloatArray:
        """See `Outcome.mean`."""
        return self.offset + self.scale * scores

    def draw(self, score: float, rng: np.random.Generator) -> float:
        """See `Outcome.draw`."""
        return float(self.offset + self.scale * score + self.noise * rng.normal())


@dataclass(frozen=True, slots=True)
class HeavyTailed:
    """Offset + scale * score, with Student's t noise of a standard deviation; `freedom` > 2."""

    offset: float
    scale: float
    noise: float
    freedom: float

    def mean(self, scores: FloatArray) -> FloatArray:
        """See `Outcome.mean`."""
        return self.offset + self.scale * scores

    def draw(self, score: float, rng: np.random.Generator) -> float:
        """See `Outcome.draw`."""
        unit = rng.normal() / math.sqrt(rng.gamma(self.freedom / 2.0) * 2.0 / self.freedom)
        return float(self.offset + self.scale * score + self.noise * math.sqrt(1.0 - 2.0 / self.freedom) * unit)


@dataclass(frozen=True, slots=True)
class Clicks:
    """One with probability sigmoid(level + scale * score), else zero."""

    level: float
    scale: float

    def mean(self, scores: FloatArray) -> FloatArray:
        """See `Outcome.mean`."""
        return np.asarray(expit(self.level + self.scale * scores), dtype=np.float64)

    def draw(self, score: float, rng: np.random.Generator) -> float:
        """See `Outcome.draw`."""
        return float(rng.random() < expit(self.level + self.scale * score))


@dataclass(frozen=True, slots=True)
class Purchases:
    """With probability sigmoid(level + scale * score) a log-normal amount with a mean, else zero."""

    level: float
    scale: float
    amount: float
    log_deviation: float

    def mean(self, scores: FloatArray) -> FloatArray:
        """See `Outcome.mean`."""
        return np.asarray(self.amount * expit(self.level + self.scale * scores), dtype=np.float64)

    def draw(self, score: float, rng: np.random.Generator) -> float:
        """See `Outcome.draw`."""
        buys = rng.random() < expit(self.level + self.scale * score)
        amount = self.amount * math.exp(self.log_deviation * rng.normal() - self.log_deviation**2 / 2.0)
        return amount if buys else 0.0


def level_for_mean(chance: float, scores: FloatArray, of_level: Callable[[float], Outcome]) -> float:
    """Return the level with which scores have this mean reward."""
    low, high = -_WIDEST_LEVEL, _WIDEST_LEVEL
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if of_level(middle).mean(scores).mean() < chance:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
