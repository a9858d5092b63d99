"""Respondents: how probable it is that each answers at random.

A respondent either is careful, and answers as utilities say, or answers whatever is asked without a look at the items:
orders are all as probable then, and ratings have the spread that ratings have. One of fifty careful ones prefers the
opposite of the others, u' = -u. Given utilities u that others taught, and the share s of respondents who answer at
random, the odds that respondent r does are

    odds_r = s / (1 - s) / (0.98 prod p(a | u) / p(a at random) + 0.02 prod p(a | -u) / p(a at random))

with products over the answers of r. The share has a Beta(1, 9) prior. Somebody whose taste has nothing to do with that
of the others looks as if at random. `study_models` learns from data sets in which each respondent is careful or not by
a draw, so that what is not certain widens the spread of utilities.

Source: Dawid and Skene, Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm (1979), with
observers of three kinds, and multiple imputation in place of EM.
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

_CONTRARY = 0.02
"""So many of those who look at the items prefer the opposite of the others: they contradict, and are no guessers."""

_FOLDS = 5
"""Respondents are judged by what those of other folds teach: nobody's answers speak for themselves."""

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
    nats
        By how much all answers of each are more probable under utilities that others taught than at random, shape (P,).
    share
        The share of respondents who answer at random.
    """

    respondents: IntArray
    nats: FloatArray
    share: float

    @classmethod
    def before(cls, respondents: IntArray) -> Carelessness:
        """Return what is known of the respondents before their answers are looked at."""
        share = _CARELESS / (_CARELESS + _CAREFUL)
        return cls(respondents, np.zeros(int(respondents.max(initial=-1)) + 1), share)

    @property
    def careless(self) -> FloatArray:
        """The probability that each answers at random, shape (P,)."""
        return np.asarray(expit(logit(self.share) - self.nats))

    def draw_careful(self, rng: np.random.Generator) -> IntArray:
        """Return the answers of those who are careful in one draw, at least of the most probable one."""
        is_careless = np.append(rng.random(len(self.nats)) < self.careless, False)
        if len(self.nats):
            is_careless[int(np.argmin(self.careless))] = False
        return np.flatnonzero(~is_careless[self.respondents])

    def leave_out(self, answers: IntArray, turn: int) -> IntArray:
        """Return those of some answers that are not of the respondents who are judged in a turn."""
        return np.asarray(answers[~np.append(self._judged(turn), False)[self.respondents[answers]]])

    def judge(self, agrees: FloatArray, contradicts: FloatArray, turn: int) -> Carelessness:
        """Return what is known after a turn.

        Parameters
        ----------
        agrees, contradicts
            By how many nats each answer is more probable than at random under utilities that others taught, and under
            their opposites, shape (A,).
        """
        named, judged = self.respondents >= 0, self._judged(turn)
        careful, contrary = (
            np.bincount(self.respondents[named], one[named], len(self.nats)) for one in (agrees, contradicts)
        )
        mixed = np.logaddexp(np.log(1.0 - _CONTRARY) + careful, np.log(_CONTRARY) + contrary)
        nats = np.where(judged, mixed, self.nats)
        careless = expit(logit(self.share) - nats)
        share = (_CARELESS + careless.sum()) / (_CARELESS + _CAREFUL + len(nats))
        return Carelessness(self.respondents, nats, float(share))

    def _judged(self, turn: int) -> NDArray[np.bool_]:
        """Return who is judged in a turn: each once in as many turns as there are folds."""
        return np.asarray(np.arange(len(self.nats)) % _FOLDS == turn % _FOLDS)


def weigh_ratings(ratings: Ratings, mean: FloatArray) -> FloatArray:
    """Return by how many nats each rating is more probable under utilities of the items than at random, shape (A,).

    Either way a rater's level is that which fits best, so that n ratings of one rater count as n - 1, and the variance
    is that of all ratings.
    """
    numbers = np.zeros(len(ratings.values), dtype=np.int64) if ratings.raters is None else ratings.raters + 1
    careful, random = (
        _log_normal(values, numbers) for values in (ratings.values - mean[ratings.items], ratings.values)
    )
    return careful - random


def _log_normal(values: FloatArray, numbers: IntArray) -> FloatArray:
    """Return the log density of normal values about the mean of their rater, but for a constant, rater by number."""
    counts = np.maximum(np.bincount(numbers), 1)
    squares = np.square(values - (np.bincount(numbers, values) / counts)[numbers])
    shares = 1.0 - 1.0 / counts[numbers]
    variance = max(float(squares.sum() / max(shares.sum(), 1.0)), _LEAST_VARIANCE)
    return np.asarray(-0.5 * (squares / variance + shares * np.log(variance)))
