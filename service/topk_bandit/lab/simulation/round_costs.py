"""What rounds of GP-TopK cost: the rows of the paper's Table 1, for its approaches and for the service.

Nothing is timed: `Work` counts. Each round predicts a few slates and then learns one reward. The rows are

- compute: the work of T rounds;
- memory: bytes of what is kept for their rows;
- mvm: one product with the kernel matrix after them; the service, which keeps no such matrix but the inverse of its
  Cholesky factor, predicts one slate instead;
- update: the work of taking in one row, over the last T / 2 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.paper.approaches import Approach, FeatureApproach, KernelApproach, NaiveApproach
from topk_bandit.lab.paper.work import Work
from topk_bandit.lab.simulation.service_work import ServiceApproach
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.learning.rankings import Rankings

__all__ = ["DEFAULT_SERVICE", "FEATURE", "FEW_ROWS_SERVICE", "KERNEL", "METHODS", "NAIVE", "Size", "costs"]

FloatArray = NDArray[np.float64]

N_ITEMS, PREDICTED, ITERATIONS, NOISE_VARIANCE = 50, 2, 20, 0.1

_FEW_ROWS = 64
"""So few that it shows within hundreds of rounds what a bound on the rows does."""

_SERVICE = {f"this service, {rows} rows": Limits(rows=rows) for rows in (Limits().rows, _FEW_ROWS)}
DEFAULT_SERVICE, FEW_ROWS_SERVICE = _SERVICE
FEATURE, KERNEL, NAIVE = "feature approach", "kernel approach", "naive"
METHODS = (DEFAULT_SERVICE, FEW_ROWS_SERVICE, FEATURE, KERNEL, NAIVE)


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of a context, c, and items of a slate, k; the defaults are the larger setting's of the paper."""

    context_dim: int = 5
    slate_size: int = 6


_LARGER = Size()


def costs(method: str, seed: Sequence[int], *, marks: Sequence[int], size: Size = _LARGER) -> FloatArray:
    """Return compute, memory, mvm and update of one of `METHODS` after so many rounds, shape (4, marks).

    Parameters
    ----------
    seed
        Of slates, contexts and rewards, which are the same for all methods.
    marks
        Numbers of rounds, ascending.
    """
    work = Work()
    approach = _approach(method, work, size, marks[-1])
    found, updates, done = [], np.zeros(marks[-1]), 0
    for t, (context, (shown, *asked), reward) in enumerate(_stream(seed, size, marks[-1])):
        start = work.count
        approach.moments(context, np.array(asked))
        predicted = work.count
        approach.update(context, shown, reward)
        done, updates[t] = done + work.count - start, work.count - predicted
        if t + 1 in marks:
            mvm = _product_work(approach, work, context, shown, t + 1)
            found.append((done, approach.memory_bytes, mvm, updates[(t + 1) // 2 : t + 1].mean()))
    return np.array(found, dtype=np.float64).T


def _product_work(
    approach: Approach | ServiceApproach, work: Work, context: FloatArray, ranking: NDArray[np.int32], rows: int
) -> int:
    before = work.count
    if isinstance(approach, ServiceApproach):
        approach.moments(context, ranking[None])
    else:
        approach.mvm(np.ones((rows, 1)))
    return work.count - before


def _approach(method: str, work: Work, size: Size, capacity: int) -> Approach | ServiceApproach:
    kernel = weighted_convolutional_kendall(N_ITEMS, size.slate_size)
    c = size.context_dim
    if method in _SERVICE:
        return ServiceApproach(kernel, work, context_dim=c, limits=_SERVICE[method])
    if method == NAIVE:
        return NaiveApproach(kernel, work, context_dim=c, noise_variance=NOISE_VARIANCE, capacity=capacity)
    kind = KernelApproach if method == KERNEL else FeatureApproach
    return kind(kernel, work, context_dim=c, noise_variance=NOISE_VARIANCE, capacity=capacity, iterations=ITERATIONS)


def _stream(seed: Sequence[int], size: Size, rounds: int) -> Iterator[tuple[FloatArray, Rankings, float]]:
    """Yield each round's context of norm 1, the slate shown and those asked about (1 + predicted, k), and a reward."""
    rng = np.random.default_rng(list(seed))
    count = (1 + PREDICTED) * rounds
    slates = random_rankings(np.arange(N_ITEMS), slate_size=size.slate_size, count=count, rng=rng)
    contexts = rng.normal(size=(rounds, size.context_dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    return zip(contexts, slates.reshape(rounds, 1 + PREDICTED, -1), rng.normal(size=rounds).tolist(), strict=True)
