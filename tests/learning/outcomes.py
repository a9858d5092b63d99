"""Outcomes of items the slow way: one mixed model of all of them, by dense algebra."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.learning.item_outcomes import ItemOutcomes, OutcomeRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    Study = tuple[NDArray[np.int32], FloatArray]

RATIOS = [0.25, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]
MANY = 1000
"""More items than any test has."""


def drawn_rows(
    seed: int,
    *,
    count: int,
    n_items: int,
    slate_size: int = 3,
    context_dim: int = 3,
    differ: float = 1.0,
    gaps: float = 0.0,
    faded: bool = False,
    length: float = 1.0,
) -> OutcomeRows:
    """Draw slates whose items differ, on their own and by contexts; x has `context_dim` numbers.

    Parameters
    ----------
    differ
        Standard deviation of what items differ by, over that of the noise.
    gaps
        Share of the outcomes that are not known.
    faded
        Whether slates count for less than one.
    length
        Of the contexts.
    """
    rng = np.random.default_rng(seed)
    rankings = np.array([rng.permutation(n_items)[:slate_size] for _ in range(count)], dtype=np.int32)
    if context_dim == 1:
        extended = length * rng.uniform(0.5, 1.5, size=(count, 1))
    else:
        own = length * rng.normal(size=(count, context_dim - 1)) / math.sqrt(context_dim - 1)
        extended = np.column_stack([np.ones(count), own])
    tastes = 0.7 + differ * rng.normal(size=(n_items, context_dim)) * np.append(1.0, np.full(context_dim - 1, 0.6))
    in_unit = extended / np.append(1.0, np.full(context_dim - 1, length)) if context_dim > 1 else extended / length
    discounts = 1.0 / np.log2(np.arange(slate_size) + 2.0)
    outcomes = 2.0 - 0.3 * np.arange(slate_size) + rng.normal(size=(count, slate_size))
    outcomes += discounts * np.einsum("rd,rkd->rk", in_unit, tastes[rankings])
    rewards = 1.5 * outcomes.sum(axis=1) + rng.normal(size=count)
    outcomes[rng.random(outcomes.shape) < gaps] = np.nan
    weights = rng.uniform(0.2, 1.0, size=count) if faded else np.ones(count)
    return OutcomeRows(extended, rankings, outcomes, weights, rewards)


def drawn_study(seed: int, items: list[int], context_dim: int = 3) -> Study:
    rng = np.random.default_rng(seed)
    return np.array(items, dtype=np.int32), rng.normal(size=(len(items), context_dim))


def added_up(rows: OutcomeRows, *, most_items: int = MANY) -> ItemOutcomes:
    none = ItemOutcomes.none(rows.extended.shape[1], rows.rankings.shape[1])
    return none.plus(rows, most_items=most_items)


def part_of(rows: OutcomeRows, chosen: slice | NDArray[np.intp] | NDArray[np.bool_]) -> OutcomeRows:
    return OutcomeRows(*(array[chosen] for array in rows))


class Fit(NamedTuple):
    """The mixed model at one share of contexts and one ratio of the noise."""

    evidence: float
    share: float
    ratio: float
    noise: float
    prior: FloatArray
    common: FloatArray
    coefficients: FloatArray
    covariances: FloatArray


@dataclass(frozen=True)
class MixedModel:
    """All outcomes in one vector: o = alpha_p + a_p x.phi_i + noise, the noise with variance sigma^2 / weight."""

    rows: OutcomeRows
    study: Study | None = None

    @cached_property
    def entries(self) -> list[tuple[int, int]]:
        """Row and position of each outcome that is known."""
        return [(int(r), int(p)) for r, p in np.argwhere(~np.isnan(self.rows.outcomes))]

    @cached_property
    def items(self) -> list[int]:
        return sorted({int(self.rows.rankings[entry]) for entry in self.entries})

    @cached_property
    def weights(self) -> FloatArray:
        return np.array([self.rows.weights[row] for row, _ in self.entries])

    @cached_property
    def intercepts(self) -> FloatArray:
        """The mean outcome at each position."""
        known = ~np.isnan(self.rows.outcomes)
        return np.array(
            [
                np.average(self.rows.outcomes[known[:, p], p], weights=self.rows.weights[known[:, p]])
                for p in range(known.shape[1])
            ]
        )

    @cached_property
    def values(self) -> FloatArray:
        return np.array([self.rows.outcomes[entry] - self.intercepts[entry[1]] for entry in self.entries])

    @cached_property
    def scaled(self) -> FloatArray:
        """a_p x of each outcome."""
        return np.array([self.rows.extended[r] / math.log2(p + 2) for r, p in self.entries])

    @cached_property
    def beliefs(self) -> FloatArray:
        """s of each item, zero for one that the study does not know."""
        believed = dict(zip(self.study[0].tolist(), self.study[1], strict=True)) if self.study else {}
        return np.array([believed.get(item, np.zeros(self.rows.extended.shape[1])) for item in self.items])

    def shares(self, share: float) -> FloatArray:
        """Return the diagonal of D: by contexts items differ `share` times as much as on their own."""
        squares = self.weights @ self.scaled**2
        if len(squares) == 1:
            whole = sum(w / math.log2(p + 2) ** 2 for w, (_, p) in zip(self.weights, self.entries, strict=True))
            return whole / squares
        return np.append(1.0, np.full(len(squares) - 1, share * squares[0] / squares[1:].sum()))

    def at(self, share: float, ratio: float) -> Fit:
        """Return the model with D and r given: generalised least squares, and the best linear predictions."""
        weights, values, scaled, items = self.weights, self.values, self.scaled, self.items
        place = [items.index(int(self.rows.rankings[entry])) for entry in self.entries]
        prior = np.diag(self.shares(share)) / ratio
        random = np.zeros((len(values), len(items), scaled.shape[1]))
        random[np.arange(len(values)), place] = scaled
        covariance = np.diag(1.0 / weights) + np.einsum("aid,de,bie->ab", random, prior, random, optimize=True)
        inverse = np.linalg.inv(covariance)
        design = scaled
        if self.study is not None:
            design = np.column_stack([scaled, (scaled * self.beliefs[place]).sum(axis=1)])
        common = np.linalg.lstsq(design.T @ inverse @ design, design.T @ inverse @ values, rcond=1e-11)[0]
        left = values - design @ common
        square = float(left @ inverse @ left)
        count = float(weights.sum())
        evidence = -0.5 * (count * math.log(square) + np.linalg.slogdet(covariance)[1])
        centres = np.tile(common[: scaled.shape[1]], (len(items), 1))
        if self.study is not None:
            centres = centres + common[-1] * self.beliefs
        told = np.einsum("aid,de->aie", random, prior)
        coefficients = centres + np.einsum("aie,a->ie", told, inverse @ left)
        covariances = prior - np.einsum("aie,ab,bif->ief", told, inverse, told, optimize=True)
        return Fit(evidence, share, ratio, square / count, prior, common, coefficients, covariances)

    def best(self) -> Fit:
        """Return the most likely one of all that are tried."""
        shares = (0.1, 1.0) if self.rows.extended.shape[1] > 1 else (1.0,)
        return max((self.at(share, ratio) for share in shares for ratio in RATIOS), key=lambda fit: fit.evidence)
