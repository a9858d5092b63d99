"""Respondents: how probable it is that each answers at random.

A respondent either is careful, and answers as utilities say, or answers whatever is asked without a look at the items:
orders are all as probable then, and ratings have the spread that ratings have. Given utilities u and the share s of
respondents who answer at random, the odds that respondent r does are

    odds_r = s / (1 - s) prod over answers a of r: p(a at random) / p(a | u).

Whoever prefers the opposite of most others is found as well: chance explains such answers better. Few answers hardly
move the odds. The share has a Beta(1, 9) prior. `study_models` learns from data sets in which each respondent is
careful or not by a draw, so that what is not certain widens the spread of utilities.

Source: Dawid and Skene, Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm (1979), with
observers of two kinds, and multiple imputation in place of EM.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from topk_bandit.domain.studies import Respondent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.preferences.answers import IntArray, Ratings

__all__ = ["Carelessness", "RespondentNames", "weigh_ratings"]

FloatArray = NDArray[np.float64]

_CARELESS, _CAREFUL = 1.0, 9.0
"""The prior of the share of respondents who answer at random, as so many seen before."""

_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, eq=False)
class RespondentNames:
    """Who gave each answer.

    Attributes
    ----------
    named
        The name with each answer, A names; empty where nobody is named.
    """

    named: Sequence[str]

    @cached_property
    def distinct(self) -> tuple[str, ...]:
        """The P names, in the order of their first answers."""
        return tuple(name for name in dict.fromkeys(self.named) if name)

    @property
    def numbers(self) -> IntArray | None:
        """The number of each answer's name among `distinct`, shape (A,), -1 for none; None where nobody is named."""
        if not self.distinct:
            return None
        number_of = {"": -1} | {name: number for number, name in enumerate(self.distinct)}
        return np.array([number_of[name] for name in self.named], dtype=np.int64)

    def describe(self, careless: FloatArray) -> tuple[Respondent, ...]:
        """Return who is named, the one first who answers most probably at random; probabilities have shape (P,)."""
        counts = Counter(self.named)
        found = map(Respondent, self.distinct, (counts[name] for name in self.distinct), careless.tolist())
        return tuple(sorted(found, key=lambda one: -one.careless))


@dataclass(frozen=True, slots=True, eq=False)
class Carelessness:
    """What is known of each respondent.

    Attributes
    ----------
    respondents
        The number of the one that gave each answer, from 0 on, shape (A,); -1 for one that is not named.
    careless
        The probability that each answers at random, shape (P,).
    share
        The share of respondents who do.
    """

    respondents: IntArray
    careless: FloatArray
    share: float

    @classmethod
    def before(cls, respondents: IntArray) -> Carelessness:
        """Return what is known of the respondents before their answers are looked at."""
        share = _CARELESS / (_CARELESS + _CAREFUL)
        return cls(respondents, np.full(int(respondents.max(initial=-1)) + 1, share), share)

    def after(self, evidence: FloatArray) -> Carelessness:
        """Return what is known when each answer is more probable by so many nats if it is careful, shape (A,)."""
        named = self.respondents >= 0
        nats = np.bincount(self.respondents[named], evidence[named], minlength=len(self.careless))
        careless = np.asarray(expit(logit(self.share) - nats))
        share = (_CARELESS + careless.sum()) / (_CARELESS + _CAREFUL + len(careless))
        return Carelessness(self.respondents, careless, float(share))

    def draw_careful(self, rng: np.random.Generator) -> IntArray:
        """Return the answers of those who are careful in one draw, at least of the most probable one."""
        is_careless = np.append(rng.random(len(self.careless)) < self.careless, False)
        if len(self.careless):
            is_careless[int(np.argmin(self.careless))] = False
        return np.flatnonzero(~is_careless[self.respondents])


def weigh_ratings(ratings: Ratings, mean: FloatArray) -> FloatArray:
    """Return by how many nats each rating is more probable under utilities of the items than at random, shape (A,).

    Either way a rater's level is that which fits best, and the variance that of all ratings.
    """
    careful, random = (
        _log_normal(_square_about_level(values, ratings.raters))
        for values in (ratings.values - mean[ratings.items], ratings.values)
    )
    return careful - random


def _square_about_level(values: FloatArray, raters: IntArray | None) -> FloatArray:
    """Return the squares of values about the mean of their rater; those that are not named are one."""
    numbers = np.zeros(len(values), dtype=np.int64) if raters is None else raters + 1
    means = np.bincount(numbers, values) / np.maximum(np.bincount(numbers), 1)
    return np.asarray(np.square(values - means[numbers]))


def _log_normal(squares: FloatArray) -> FloatArray:
    """Return the log density of normal numbers with these squares, but for a constant, at the variance they have."""
    variance = max(float(squares.mean()), _LEAST_VARIANCE)
    return np.asarray(-0.5 * (squares / variance + np.log(variance)))
