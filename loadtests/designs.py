"""D-optimal designs: how soon they are there, how good they are, and beside what their sources used."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

import numpy as np

import peers
from figures import Bench, Figure, Outcome, exponent
from topk_bandit.lab.paper.sampled_frank_wolfe import GAMMA, SampledFrankWolfe, random_subsets
from topk_bandit.preferences.designs.optimal import Feedback, d_optimal_lists, d_optimal_subsets, ranking_matrices
from topk_bandit.preferences.designs.spans import span_of_differences
from topk_bandit.preferences.questions import MOST_OWN_PARTS, QuestionPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topk_bandit.preferences.designs.optimal import Progress, SubsetDesign

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = ["design_growth", "design_large", "design_lists", "design_subsets"]

Made = TypeVar("Made")

WIDTH, SIZE = 6, 4
TABLE_1 = {100: 4.71, 200: 8.31, 400: 21.0, 800: 49.72}
"""Seconds that Dope's Table 1 gives for lists of K = 4 items."""

POOL = 10_000
UNIFORM = 100_000


def synthetic(lists: int, seed: int) -> Floats:
    """Return the matrices of Dope's Synthetic 2: vec(q a'), q in [0, 1]^6, a in [1, 2]^6, both of unit length."""
    rng = np.random.default_rng(seed)
    queries, answers = rng.uniform(0.0, 1.0, (lists, WIDTH)), rng.uniform(1.0, 2.0, (lists, SIZE, WIDTH))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    answers /= np.linalg.norm(answers, axis=2, keepdims=True)
    return ranking_matrices(np.einsum("li,lkj->lkij", queries, answers).reshape(lists, SIZE, WIDTH * WIDTH))


def design_lists(bench: Bench) -> Outcome:
    """Time designs over given lists to a gap of 0.001 d, beside CVXPY in the same run."""
    figures, repeats, d = [], bench.scaled(30, 3), WIDTH * WIDTH
    for lists, theirs in TABLE_1.items():
        matrices = synthetic(lists, seed=lists)
        seconds, design = _timed(partial(d_optimal_lists, matrices, gap_tolerance=1e-3 * d), repeats)
        figures += [
            Figure(f"seconds_{lists}", f"L = {lists}, the fastest of {repeats}", min(seconds), "s"),
            Figure(f"median_{lists}", f"L = {lists}, the median", float(np.median(seconds)), "s"),
            Figure(f"gap_{lists}", f"L = {lists}, gap / d, as defined", _gap_of_lists(matrices, design.weights)),
            Figure(f"table_{lists}", f"L = {lists}, Dope's Table 1 / ours", theirs / min(seconds), "x"),
        ]
        bench.report(len(figures) // 4, len(TABLE_1) + 1)
    ours = {figure.key: figure.value for figure in figures}
    absent = peers.absent(peers.CVXPY)
    if not absent:
        figures += _cvxpy(bench.scaled(800, 100), ours)
    return Outcome(figures, {"K": SIZE, "d": d, "gap_tolerance": "0.001 d", "threads": 1}, absent)


def _cvxpy(lists: int, ours: dict[str, float]) -> list[Figure]:
    """Give the same problem to CVXPY, with its conic interior point method, the fastest of its solvers here."""
    import cvxpy  # noqa: PLC0415 - a peer

    matrices = synthetic(lists, seed=lists)
    d, products = matrices.shape[1], matrices @ matrices.transpose(0, 2, 1)
    weights = cvxpy.Variable(lists, nonneg=True)
    information = cvxpy.reshape(products.reshape(lists, -1).T @ weights, (d, d), order="C")
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.log_det(information)), [cvxpy.sum(weights) == 1])
    start = time.perf_counter()
    problem.solve(solver=cvxpy.CLARABEL)
    seconds, found = time.perf_counter() - start, np.maximum(weights.value, 0.0)
    return [
        Figure("cvxpy_seconds", f"CVXPY (Clarabel), L = {lists}", seconds, "s"),
        Figure("cvxpy_gap", f"CVXPY (Clarabel), L = {lists}, gap / d", _gap_of_lists(matrices, found / found.sum())),
        Figure("cvxpy_ratio", f"CVXPY / ours, L = {lists}", seconds / ours[f"seconds_{lists}"], "x"),
    ]


def design_growth(bench: Bench) -> Outcome:
    """Time designs over many lists to a gap of 0.01 d."""
    figures, d = [], WIDTH * WIDTH
    sizes, fastest = (1000, 10_000, bench.scaled(100_000, 20_000)), []
    for number, lists in enumerate(sizes):
        matrices = synthetic(lists, seed=lists)
        seconds, design = _timed(partial(d_optimal_lists, matrices, gap_tolerance=1e-2 * d), 3)
        fastest.append(min(seconds))
        name = "most" if lists == sizes[-1] else str(lists)
        figures += [
            Figure(f"seconds_{name}", f"L = {lists:,}, the fastest of 3", min(seconds), "s"),
            Figure(f"gap_{name}", f"L = {lists:,}, gap / d, as defined", _gap_of_lists(matrices, design.weights)),
        ]
        bench.report(number + 1, len(sizes))
    figures.append(Figure("exponent", "growth: seconds = constant L^e, e", exponent(sizes, fastest)))
    figures.append(_study_of_given_lists(sizes[-1]))
    return Outcome(figures, {"K": SIZE, "d": d, "gap_tolerance": "0.01 d", "threads": 1})


def _study_of_given_lists(lists: int) -> Figure:
    """Time the design of a study with own parts, of which there are as many as a design has at most."""
    rng = np.random.default_rng(lists)
    given = np.array([rng.choice(MOST_OWN_PARTS, SIZE, replace=False) for _ in range(lists)])
    pool = QuestionPool.of(rng.normal(size=(MOST_OWN_PARTS, WIDTH)), None, feedback=Feedback.RANKING, given=given)
    seconds, _ = _timed(partial(pool.design, list_size=SIZE, budget=1000, rng=rng), 1)
    return Figure("study_seconds", f"a study of {MOST_OWN_PARTS} items with own parts, L = {lists:,}", seconds[0], "s")


def design_subsets(bench: Bench) -> Outcome:
    """Time designs over all triples of 100 items to a gap of 0.01 d, beside DopeWolfe as written."""
    figures, repeats, iterations = [], bench.scaled(5, 1), bench.scaled(1000, 10)
    for number, (name, features) in enumerate(_hundred_items().items()):
        d = features.shape[1]
        seconds, design = _timed(partial(_designed, features, 3), repeats)
        figures += [
            Figure(f"{name}_seconds", f"{name}, the fastest of {repeats}", min(seconds), "s"),
            Figure(f"{name}_gap", f"{name}, gap / d, by looking at all triples", _gap_of_triples(features, design)),
            Figure(f"{name}_support", f"{name}, triples of the design", float(len(design.weights))),
            Figure(f"{name}_dimensions", f"{name}, dimensions spanned, d", float(d)),
        ]
        bench.report(number + 1, 4)
    theirs, took = _frank_wolfe(features, 3, lambda done, _: done >= iterations)
    per_thousand = took * 1000 / iterations
    figures += [
        Figure("written_seconds", "DopeWolfe as written, 1,000 iterations", per_thousand, "s"),
        Figure("written_gap", f"the same, gap / d after {iterations:,}", _gap_of_triples(features, theirs)),
        Figure("paper_ratio", "1,646.7 s on 128 processors (DopeWolfe, Table 1) / ours", 1646.7 / min(seconds), "x"),
    ]
    return Outcome(figures, {"N": 100, "K": 3, "gap_tolerance": "0.01 d", "threads": 1})


def _hundred_items() -> dict[str, Floats]:
    """Return features of 100 items in coordinates of what their differences span: at most 99 dimensions."""
    rng = np.random.default_rng(0)
    queries, answers = rng.uniform(0.0, 1.0, (100, 10)), rng.uniform(1.0, 2.0, (100, 10))
    crossed = np.einsum("ni,nj->nij", queries, answers).reshape(100, 100)
    crossed /= np.linalg.norm(crossed, axis=1, keepdims=True)
    plain = {"fifty": rng.normal(size=(100, 50)), "crossed": crossed, "random": rng.normal(size=(100, 100))}
    return {name: span_of_differences(features).coordinates for name, features in plain.items()}


@dataclass(frozen=True, slots=True)
class _Large:
    key: str
    n_items: int
    size: int
    width: int

    @property
    def label(self) -> str:
        return f"N = {self.n_items:,}, K = {self.size}, {self.width} features"


def design_large(bench: Bench) -> Outcome:
    """Design where there are far too many subsets; beside what others reach in the time that it took.

    100 items with 100 features are a simplex but for a linear map: there all subsets alike are optimal, which a sample
    of 100,000 almost is, and no design can be much above it.
    """
    cases = [
        _Large("ten", 100, 10, 50),
        _Large("simplex", 100, 10, 100),
        _Large("thousands", bench.scaled(2000, 300), 3, 100),
    ]
    figures: list[Figure] = []
    for number, case in enumerate(cases):
        rng = np.random.default_rng(case.size)
        features = span_of_differences(rng.normal(size=(case.n_items, case.width))).coordinates
        seconds, design = _timed(partial(_designed, features, case.size), 1)
        figures += _beside_others(case, features, design, seconds[0])
        bench.report(number + 1, len(cases))
    settings = {"features": "random", "gap_tolerance": "0.01 d", "threads": 1, "pool": POOL, "uniform": UNIFORM}
    return Outcome(figures, settings)


def _beside_others(case: _Large, features: Floats, design: SubsetDesign, seconds: float) -> list[Figure]:
    rng, d = np.random.default_rng(1), features.shape[1]
    drawn = random_subsets(rng, len(features), case.size, UNIFORM)
    pool = drawn[:POOL]
    ours = _log_det(features, design.subsets, design.weights)
    even = _log_det(features, drawn, np.full(UNIFORM, 1.0 / UNIFORM))
    weighed = _log_det(features, pool, _weighed_pool(features, pool, seconds))
    theirs = _frank_wolfe(features, case.size, lambda _, elapsed: elapsed >= seconds)[0]
    written = _log_det(features, theirs.subsets, theirs.weights)
    return [
        Figure(f"{case.key}_seconds", f"{case.label}: time", seconds, "s"),
        Figure(f"{case.key}_gap", f"{case.label}: bound of the gap / d", design.gap / d),
        Figure(f"{case.key}_support", f"{case.label}: subsets of the design", float(len(design.weights))),
        Figure(f"{case.key}_subsets", f"{case.label}: subsets there are", float(math.comb(case.n_items, case.size))),
        Figure(f"{case.key}_log_det", f"{case.label}: log det V", ours),
        Figure(f"{case.key}_above_even", f"{case.label}: above {UNIFORM:,} subsets alike", ours - even),
        Figure(f"{case.key}_above_pool", f"{case.label}: above {POOL:,} weighed for that time", ours - weighed),
        Figure(f"{case.key}_above_written", f"{case.label}: above DopeWolfe as written in that time", ours - written),
    ]


def _weighed_pool(features: Floats, pool: Integers, seconds: float) -> Floats:
    """Return D-optimal weights of subsets drawn uniformly, as good as they get in the time."""
    rows = features[pool]
    centred = math.sqrt(pool.shape[1]) * (rows - rows.mean(axis=1, keepdims=True))
    deadline = time.perf_counter() + seconds

    def watch(_: Progress) -> bool:
        return time.perf_counter() >= deadline

    return d_optimal_lists(centred.transpose(0, 2, 1), gap_tolerance=1e-2 * features.shape[1], watch=watch).weights


@dataclass(frozen=True, slots=True, eq=False)
class _Weighed:
    subsets: Integers
    weights: Floats


def _frank_wolfe(features: Floats, size: int, done: Callable[[int, float], bool]) -> tuple[_Weighed, float]:
    """Run DopeWolfe as written until `done` says so of its iterations and seconds; return also how long it took."""
    run, start, iterations = SampledFrankWolfe(features, size, np.random.default_rng(2)), time.perf_counter(), 0
    while not done(iterations, time.perf_counter() - start):
        run.iterate()
        iterations += 1
    took = time.perf_counter() - start
    return _Weighed(np.array(list(run.weights)), np.array(list(run.weights.values()))), took


def _designed(features: Floats, size: int) -> SubsetDesign:
    tolerance = 1e-2 * features.shape[1]
    return d_optimal_subsets(features, subset_size=size, gap_tolerance=tolerance, rng=np.random.default_rng(0))


def _timed(make: Callable[[], Made], repeats: int) -> tuple[Sequence[float], Made]:
    """Return the seconds of each of some repeats, after one that is not counted, and what was made."""
    seconds = []
    for _ in range(repeats + (repeats > 1)):
        start = time.perf_counter()
        design = make()
        seconds.append(time.perf_counter() - start)
    return seconds[repeats > 1 :], design


def _information(features: Floats, subsets: Integers, weights: Floats) -> Floats:
    """Return V, from the features of the subsets' items and K times their scatter."""
    total = np.zeros((features.shape[1],) * 2)
    for first in range(0, len(subsets), 5000):
        rows = features[subsets[first : first + 5000]]
        scale = np.sqrt(subsets.shape[1] * weights[first : first + 5000])[:, None, None]
        flat = (scale * (rows - rows.mean(axis=1, keepdims=True))).reshape(-1, features.shape[1])
        total += flat.T @ flat
    return total


def _log_det(features: Floats, subsets: Integers, weights: Floats) -> float:
    """Return log det(V + gamma I), which is what the source maximises."""
    return float(np.linalg.slogdet(_information(features, subsets, weights) + GAMMA * np.eye(features.shape[1]))[1])


def _gap_of_lists(matrices: Floats, weights: Floats) -> float:
    """Return (max_i g_i - d) / d, from the definition."""
    shown = np.flatnonzero(weights)
    weighed = matrices[shown] * np.sqrt(weights[shown])[:, None, None]
    inverse = np.linalg.inv(np.tensordot(weighed, weighed, axes=([0, 2], [0, 2])))
    gradients = np.concatenate(
        [np.einsum("ldm,ldm->l", part, inverse @ part) for part in np.array_split(matrices, 1 + len(matrices) // 5000)]
    )
    return float(gradients.max() / len(inverse) - 1.0)


def _gap_of_triples(features: Floats, design: SubsetDesign | _Weighed) -> float:
    """Return (max_S G(S) - d) / d over all triples."""
    inverse = np.linalg.inv(_information(features, design.subsets, design.weights) + GAMMA * np.eye(features.shape[1]))
    gram = features @ inverse @ features.T
    pairs = np.diag(gram)[:, None] + np.diag(gram) - 2.0 * gram
    triples = np.array(list(combinations(range(len(features)), 3)))
    i, j, k = triples.T
    return float((pairs[i, j] + pairs[i, k] + pairs[j, k]).max() / len(inverse) - 1.0)
