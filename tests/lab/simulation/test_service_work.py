"""The work that is reported of the service is what its own code does, watched through arrays that count."""

from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.lab.paper.work import Work, of_brackets, of_cholesky, of_own_brackets
from topk_bandit.lab.simulation.service_work import ServiceApproach, of_profile, of_reduction, of_whitening
from topk_bandit.learning import _layout, _rows, _ties, _triangles, hyperparameters, observed_rows, posterior
from topk_bandit.learning.compiled import kendall, tridiagonal
from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.rankings import all_rankings

N_ITEMS, SLATE_SIZE, CONTEXT_DIM = 12, 3, 3
EVERY_SLATE = all_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE)
COUNTED = {np.multiply, np.divide, np.sqrt, np.square, np.power}


class Watched(np.ndarray):
    """An array that counts multiplications, divisions and roots in which it takes part."""

    count = 0

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, out: object = None, **kwargs: object
    ) -> object:
        given = [bare(value) for value in inputs]
        if out is not None:
            kwargs["out"] = tuple(bare(value) for value in out)
        result = getattr(ufunc, method)(*given, **kwargs)
        if method == "__call__" and ufunc in COUNTED:
            Watched.count += np.size(result)
        if ufunc is np.matmul:
            Watched.count += np.size(result) * given[0].shape[-1]
        return watched(out[0] if out is not None else result)

    def __array_function__(self, func: object, types: object, args: object, kwargs: object) -> object:
        work = {
            np.linalg.cholesky: of_cholesky,
            np.linalg.matrix_rank: of_rank,
        }
        if func in work:
            Watched.count += work[func](*(args[0].shape if func is np.linalg.matrix_rank else args[0].shape[:1]))
            return watched(func(bare(args[0]), **kwargs))
        return super().__array_function__(func, types, args, kwargs)


def of_rank(rows: int, columns: int) -> int:
    """Singular values by Golub and Van Loan, half of whose 4 m n^2 - 4 n^3 / 3 are multiplications; roughly."""
    return 2 * rows * columns**2


def bare(value: object) -> object:
    return value.view(np.ndarray) if isinstance(value, Watched) else value


def watched(value: object) -> object:
    floats = isinstance(value, np.ndarray) and value.dtype == np.float64
    return value.view(Watched) if floats else value


class WatchedNumpy:
    """Numpy whose new arrays count."""

    def __getattr__(self, name: str) -> object:
        value = getattr(np, name)
        if name in {
            "array",
            "zeros",
            "ones",
            "eye",
            "asarray",
            "concatenate",
            "vstack",
            "ascontiguousarray",
            "zeros_like",
        }:
            return lambda *args, **kwargs: watched(value(*args, **kwargs))
        return value


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (posterior, observed_rows, hyperparameters, _layout, _rows, _ties, _triangles):
        monkeypatch.setattr(module, "np", WatchedNumpy())
    gram, dtrtri, dpstrf = kendall.gram, _triangles.dtrtri, observed_rows.dpstrf

    def watched_gram(left: object, right: object, n_items: int, *weights: object) -> object:
        Watched.count += of_brackets(left, right, n_items=n_items)
        return watched(gram(left, right, n_items, *weights))

    def watched_dtrtri(triangle: object, **kwargs: object) -> object:
        Watched.count += of_cholesky(len(triangle))
        return dtrtri(bare(triangle), **kwargs)

    def watched_dpstrf(matrix: object, **kwargs: object) -> object:
        Watched.count += of_cholesky(len(matrix))
        factor, *others = dpstrf(bare(matrix), **kwargs)
        return watched(factor), *others

    gram_of, whiten, reduce_to_diagonals = kendall.gram_of, hyperparameters.whiten, hyperparameters.reduce_to_diagonals
    profile = tridiagonal.profile

    def watched_gram_of(rankings: object, n_items: int, *weights: object) -> object:
        Watched.count += of_own_brackets(rankings, n_items=n_items)
        return watched(gram_of(rankings, n_items, *weights))

    def watched_whiten(matrix: object, targets: object, factor: object) -> object:
        Watched.count += of_whitening(len(matrix), len(targets))
        return tuple(watched(one) for one in whiten(bare(matrix), bare(targets), bare(factor)))

    def watched_reduce(matrix: object, targets: object) -> object:
        Watched.count += of_reduction(len(matrix), len(targets))
        return reduce_to_diagonals(bare(matrix), bare(targets))

    def watched_profile(diagonal: object, beside: object, targets: object, left: object, ratios: object) -> object:
        Watched.count += of_profile(len(diagonal), len(targets))
        return profile(diagonal, beside, targets, bare(left), bare(ratios))

    monkeypatch.setattr(kendall, "gram_of", watched_gram_of)
    monkeypatch.setattr(hyperparameters, "whiten", watched_whiten)
    monkeypatch.setattr(hyperparameters, "reduce_to_diagonals", watched_reduce)
    monkeypatch.setattr(tridiagonal, "profile", watched_profile)
    monkeypatch.setattr(observed_rows, "dpstrf", watched_dpstrf)
    monkeypatch.setattr(kendall, "gram", watched_gram)
    monkeypatch.setattr(_triangles, "dtrtri", watched_dtrtri)


def played(approach: ServiceApproach, work: Work, rounds: int) -> tuple[list[int], list[int], list[int]]:
    """Return the work that was not reported: of each prediction, of each plain update, and of each with a refit."""
    rng = np.random.default_rng(3)
    slates = rng.permutation(EVERY_SLATE)
    predictions, plain, refits = [], [], []
    for ranking in slates[:rounds]:
        context, asked = rng.normal(size=CONTEXT_DIM).view(Watched), slates[rng.choice(len(slates), size=2)]
        before = Watched.count - work.count
        approach.moments(context, asked)
        predicted = Watched.count - work.count
        approach.update(context, ranking, float(rng.normal()))
        predictions.append(predicted - before)
        kind = plain if approach.state.since_refit else refits
        kind.append(Watched.count - work.count - predicted)
    return predictions, plain, refits


@pytest.mark.usefixtures("watching")
@pytest.mark.parametrize(("limit", "rounds"), [(512, 110), (70, 140)])
def test_the_work_reported_is_the_work_done(limit: int, rounds: int) -> None:
    work = Work()
    kernel = weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE)
    approach = ServiceApproach(kernel, work, context_dim=CONTEXT_DIM, limits=Limits(rows=limit))
    predictions, plain, refits = played(approach, work, rounds)
    assert set(predictions) == set(plain) == {0}
    assert len(refits) >= 9
    # What is left out does not grow with the rows, of which there are 8 at first.
    assert set(refits) == {refits[0]}
    assert 0 < refits[0] < 2000
    assert work.count > 1000 * refits[0]


def test_it_is_the_services_state() -> None:
    rng, kernel, limits = np.random.default_rng(4), weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE), Limits(rows=20)
    approach = ServiceApproach(kernel, Work(), context_dim=2, limits=limits)
    state = State.initial(kernel, context_dim=2, limits=limits)
    for ranking in rng.permutation(EVERY_SLATE)[:40]:
        context, reward = rng.normal(size=2), float(rng.normal())
        approach.update(context, ranking, reward)
        state = state.shown("a", context, ranking).rewarded("a", context, ranking, reward=reward)
    asked = EVERY_SLATE[:9]
    for ours, its in zip(approach.moments(context, asked), state.predict(context, asked), strict=True):
        np.testing.assert_array_equal(ours, its)
    assert approach.memory_bytes == state.memory_bytes
