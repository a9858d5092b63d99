"""The approaches of Table 1 agree with each other, and do as much work as they count."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_forms import examples

from topk_bandit.lab.paper.approaches import FeatureApproach, KernelApproach, NaiveApproach
from topk_bandit.lab.paper.dense_posterior import DenseAtContext, pair_features
from topk_bandit.lab.paper.work import Arithmetic, Work, of_brackets, of_cholesky, of_triangular_solve
from topk_bandit.learning.compiled import kendall
from topk_bandit.learning.kendall import KendallKernel, weighted_convolutional_kendall
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.lab.paper.approaches import Approach

NOISE, ITERATIONS, TINY = 0.1, 3, 1e-300


class Tally:
    """Makes numbers, and counts what these are multiplied with and divided by."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, values: object) -> np.ndarray:
        array = np.asarray(values, dtype=np.float64)
        numbers = np.empty(array.shape, dtype=object)
        for place in np.ndindex(*array.shape):
            numbers[place] = Number(float(array[place]), self)
        return numbers


@dataclass(frozen=True)
class Number:
    """One number in plain Python; to multiply, divide or take a root is counted, to add is not."""

    value: float
    tally: Tally

    def __float__(self) -> float:
        return self.value

    def __add__(self, other: Number | float) -> Number:
        return Number(self.value + float(other), self.tally)

    __radd__ = __add__

    def __neg__(self) -> Number:
        return Number(-self.value, self.tally)

    def __sub__(self, other: Number | float) -> Number:
        return Number(self.value - float(other), self.tally)

    def __rsub__(self, other: float) -> Number:
        return Number(other - self.value, self.tally)

    def __mul__(self, other: Number | float) -> Number:
        self.tally.count += 1
        return Number(self.value * float(other), self.tally)

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Number:
        self.tally.count += 1
        return Number(self.value / max(other.value, TINY), self.tally)

    def root(self) -> Number:
        self.tally.count += 1
        return Number(math.sqrt(self.value), self.tally)


class Plain:
    """The approaches again, number by number."""

    def __init__(self, kernel: KendallKernel) -> None:
        self.tally = Tally()
        self.kernel = kernel
        self.zero, self.noise, self.scale = self.tally.of([0.0, NOISE, kernel.scale])
        self.weights = [
            self.tally.of(w) for w in (kernel.item_weight, kernel.pair_weight, kernel.divergence, kernel.total)
        ]
        self.weights[3] = self.weights[3][()]
        self.contexts: list[list] = []
        self.rankings: list[np.ndarray] = []
        self.rewards: list = []

    def dot(self, left: list, right: list) -> Number:
        return sum((a * b for a, b in zip(left, right, strict=True)), start=self.zero)

    def take(self, context: np.ndarray, ranking: np.ndarray, reward: float) -> list:
        point = list(self.tally.of(context))
        self.contexts.append(point)
        self.rankings.append(ranking)
        self.rewards.append(self.tally.of(reward)[()])
        return point

    def against(self, point: list, ranking: np.ndarray) -> list:
        """Return the kernel's values of all rows with a ranking, by the source of the compiled loops."""
        similarities = [self.dot(row, point) for row in self.contexts]
        return self.scaled(similarities, ranking)

    def scaled(self, similarities: list, ranking: np.ndarray) -> list:
        values = []
        for row, similarity in zip(self.rankings, similarities, strict=True):
            bracket = kendall.gram.py_func(row[None], ranking[None], self.kernel.n_items, *self.weights)
            values.append(similarity * (self.scale * float(bracket[0, 0])))
        return values

    def toward(self, point: list, rankings: np.ndarray) -> list[list]:
        similarities = [self.dot(row, point) for row in self.contexts]
        return [self.scaled(similarities, ranking) for ranking in rankings]

    def moments(self, context: np.ndarray, rankings: np.ndarray) -> tuple[list, list]:
        point = list(self.tally.of(context))
        towards = self.toward(point, rankings)
        first, *others = self.solve([self.rewards, *towards])
        prior = self.dot(point, point)
        variance = [prior - self.dot(one, solution) for one, solution in zip(towards, others, strict=True)]
        return [float(self.dot(one, first)) for one in towards], [float(one) for one in variance]

    def conjugate_gradients(self, mvm: Callable[[list], list], right: list) -> list:
        result, residual, direction = [self.zero] * len(right), right, right
        square = self.dot(residual, residual)
        for _ in range(ITERATIONS):
            image = [a + self.noise * b for a, b in zip(mvm(direction), direction, strict=True)]
            step = square / self.dot(direction, image)
            result = [a + step * b for a, b in zip(result, direction, strict=True)]
            residual = [a - step * b for a, b in zip(residual, image, strict=True)]
            before, square = square, self.dot(residual, residual)
            ratio = square / before
            direction = [a + ratio * b for a, b in zip(residual, direction, strict=True)]
        return result


class PlainNaive(Plain):
    """A matrix, and its Cholesky factor."""

    def __init__(self, kernel: KendallKernel) -> None:
        super().__init__(kernel)
        self.matrix: list[list] = []

    def update(self, context: np.ndarray, ranking: np.ndarray, reward: float) -> None:
        point = self.take(context, ranking, reward)
        *others, own = self.against(point, ranking)
        for row, value in zip(self.matrix, others, strict=True):
            row.append(value)
        self.matrix.append([*others, own])

    def solve(self, sides: list[list]) -> list[list]:
        lower: list[list] = []
        for i, row in enumerate(self.matrix):
            new: list = []
            for j in range(i):
                new.append((row[j] - self.dot(new, lower[j][:j])) / lower[j][j])
            lower.append([*new, (row[i] + self.noise - self.dot(new, new)).root()])
        return [self.substituted(lower, right) for right in sides]

    def substituted(self, lower: list[list], right: list) -> list:
        forward: list = []
        for row, value in zip(lower, right, strict=True):
            forward.append((value - self.dot(row[:-1], forward)) / row[-1])
        backward: list = []
        for i in reversed(range(len(lower))):
            column = [row[i] for row in lower[i + 1 :]]
            backward.insert(0, (forward[i] - self.dot(column, backward)) / lower[i][i])
        return backward


class PlainKernel(PlainNaive):
    """A matrix, and conjugate gradients."""

    def solve(self, sides: list[list]) -> list[list]:
        return [self.conjugate_gradients(self.mvm, right) for right in sides]

    def mvm(self, vector: list) -> list:
        return [self.dot(row, vector) for row in self.matrix]


class PlainFeature(Plain):
    """Dictionaries of what is not zero, and conjugate gradients."""

    def __init__(self, kernel: KendallKernel) -> None:
        super().__init__(kernel)
        self.rows: list[dict] = []

    def features(self, point: list, ranking: np.ndarray) -> dict:
        kernel, n = self.kernel, self.kernel.n_items
        root, u, v = math.sqrt(kernel.scale), kernel.item_weight, kernel.divergence
        entries = {("s",): (kernel.total, -kernel.total, 1.0)}
        for a, item in enumerate(ranking):
            entries["u", item] = (u[a], n * u[a] + v[a], 1.0)
            entries["v", item] = (v[a], u[a], 1.0)
        for a, b in combinations(range(len(ranking)), 2):
            first, second = ranking[a], ranking[b]
            d = kernel.pair_weight[a, b]
            entries["D", min(first, second), max(first, second)] = (d, d, 1.0 if first < second else -1.0)
        row = {}
        for key, (x, image, sign) in entries.items():
            both = [sign * number for number in self.tally.of([root * x, root * image])]
            for j, component in enumerate(point):
                row[j, *key] = tuple(component * number for number in both)
        return row

    def update(self, context: np.ndarray, ranking: np.ndarray, reward: float) -> None:
        self.rows.append(self.features(self.take(context, ranking, reward), ranking))

    def toward(self, point: list, rankings: np.ndarray) -> list[list]:
        towards = []
        for ranking in rankings:
            asked = {key: x for key, (x, _) in self.features(point, ranking).items()}
            towards.append(
                [sum((image * asked.get(key, 0.0) for key, (_, image) in row.items()), self.zero) for row in self.rows]
            )
        return towards

    def mvm(self, vector: list) -> list:
        sums: dict = defaultdict(lambda: self.zero)
        for row, weight in zip(self.rows, vector, strict=True):
            for key, (_, image) in row.items():
                sums[key] += image * weight
        return [sum((x * sums[key] for key, (x, _) in row.items()), self.zero) for row in self.rows]

    def solve(self, sides: list[list]) -> list[list]:
        return [self.conjugate_gradients(self.mvm, right) for right in sides]


def stream(n: int, k: int, c: int, rounds: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rankings = random_rankings(np.arange(n), slate_size=k, count=3 * rounds, rng=rng).reshape(rounds, 3, k)
    return rng.normal(size=(rounds, c)), rankings, rng.normal(size=rounds)


def made(
    kind: type, kernel: KendallKernel, work: Arithmetic, *, c: int, capacity: int, iterations: int = ITERATIONS
) -> Approach:
    options = {} if kind is NaiveApproach else {"iterations": iterations}
    return kind(kernel, work, context_dim=c, noise_variance=NOISE, capacity=capacity, **options)


KINDS = [(NaiveApproach, PlainNaive), (KernelApproach, PlainKernel), (FeatureApproach, PlainFeature)]


@pytest.mark.parametrize(("kind", "plain"), KINDS)
@settings(max_examples=examples(12), deadline=None)
@given(n=st.integers(4, 7), k=st.integers(1, 4), c=st.integers(1, 3), rounds=st.integers(1, 5), seed=st.integers(0, 99))
def test_each_counts_what_plain_python_does(
    kind: type, plain: type, n: int, k: int, c: int, rounds: int, seed: int
) -> None:
    kernel, work = weighted_convolutional_kendall(n, k), Work()
    approach, slow = made(kind, kernel, work, c=c, capacity=rounds), plain(kernel)
    for context, (shown, *asked), reward in zip(*stream(n, k, c, rounds, seed), strict=True):
        fast_moments = approach.moments(context, np.array(asked))
        slow_moments = slow.moments(context, np.array(asked))
        np.testing.assert_allclose(fast_moments, slow_moments, rtol=1e-7, atol=1e-9)
        assert work.count == slow.tally.count
        approach.update(context, shown, float(reward))
        slow.update(context, shown, float(reward))
        assert work.count == slow.tally.count


@pytest.mark.parametrize(("kind", "plain"), KINDS[1:])
def test_a_product_with_the_kernel_matrix_counts_what_plain_python_does(kind: type, plain: type) -> None:
    kernel, work = weighted_convolutional_kendall(6, 3), Work()
    approach, slow = made(kind, kernel, work, c=2, capacity=5), plain(kernel)
    for context, (shown, *_), reward in zip(*stream(6, 3, 2, 5, 1), strict=True):
        approach.update(context, shown, float(reward))
        slow.update(context, shown, float(reward))
    work.count = slow.tally.count = 0
    vector = np.arange(1.0, 6.0)
    product = approach.mvm(vector[:, None])[:, 0]
    np.testing.assert_allclose(product, [float(number) for number in slow.mvm(list(vector))], rtol=1e-10)
    assert work.count == slow.tally.count > 0


@pytest.mark.parametrize("kind", [NaiveApproach, KernelApproach, FeatureApproach])
def test_counting_changes_no_number(kind: type) -> None:
    kernel = weighted_convolutional_kendall(9, 4)
    counted, uncounted = (made(kind, kernel, work, c=2, capacity=12) for work in (Work(), Arithmetic()))
    for context, (shown, *asked), reward in zip(*stream(9, 4, 2, 12, 2), strict=True):
        for ours, theirs in zip(*(one.moments(context, np.array(asked)) for one in (counted, uncounted)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        counted.update(context, shown, float(reward))
        uncounted.update(context, shown, float(reward))


def test_the_approaches_agree_with_the_posterior() -> None:
    rng, kernel = np.random.default_rng(5), weighted_convolutional_kendall(8, 3)
    contexts, rankings = rng.normal(size=(40, 2)), random_rankings(np.arange(8), slate_size=3, count=44, rng=rng)
    rewards, vectors = rng.normal(size=40), rng.normal(size=(40, 2))
    posterior = Posterior.prior(kernel, context_dim=2, noise_variance=NOISE).observe(contexts, rankings[:40], rewards)
    expected = posterior.predict(contexts[0], rankings[40:])
    gram = (contexts @ contexts.T) * kernel.gram(rankings[:40], rankings[:40])
    for kind, _ in KINDS:
        approach = made(kind, kernel, Arithmetic(), c=2, capacity=40, iterations=120)
        for context, ranking, reward in zip(contexts, rankings, rewards, strict=False):
            approach.update(context, ranking, float(reward))
        mean, variance = approach.moments(contexts[0], rankings[40:])
        np.testing.assert_allclose(mean, expected.mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(variance, expected.variance, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(approach.mvm(vectors), gram @ vectors, atol=1e-12)


def test_conjugate_gradients_with_sparse_features_agree_with_a_dense_solve() -> None:
    """Claim 3's features written out over all pairs, a Cholesky factor, and no code of the approach's."""
    rng, kernel = np.random.default_rng(6), weighted_convolutional_kendall(8, 3)
    contexts, rankings = rng.normal(size=(40, 2)), random_rankings(np.arange(8), slate_size=3, count=44, rng=rng)
    rewards, features = rng.normal(size=40), pair_features(rankings, 8)
    approach = made(FeatureApproach, kernel, Arithmetic(), c=2, capacity=40, iterations=120)
    for context, ranking, reward in zip(contexts, rankings, rewards, strict=False):
        approach.update(context, ranking, float(reward))
    dense = DenseAtContext.of(contexts, features[:40], rewards, context=contexts[0], noise_variance=NOISE)
    expected, found = dense.moments(features[40:]), approach.moments(contexts[0], rankings[40:])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-8, atol=1e-10)


@given(n=st.integers(2, 9), data=st.data())
@settings(max_examples=examples(25), deadline=None)
def test_kernel_values_take_what_their_source_does(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    rankings = [np.array(data.draw(st.permutations(range(n)))[:k], dtype=np.int32) for _ in range(4)]
    left, right = np.array(rankings[:1]), np.array(rankings[1:])
    plain = Plain(weighted_convolutional_kendall(n, k))
    kendall.gram.py_func(left, right, n, *plain.weights)
    assert of_brackets(left, right, n_items=n) == plain.tally.count


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_factors_and_solves_take_what_plain_python_does(n: int) -> None:
    slow = PlainNaive(weighted_convolutional_kendall(4, 2))
    slow.matrix = [list(row) for row in slow.tally.of(np.ones((n, n)) + n * np.eye(n))]
    slow.solve([])
    assert of_cholesky(n) == slow.tally.count
    slow.solve([list(slow.tally.of(np.ones(n)))])
    assert 2 * of_triangular_solve(n) == slow.tally.count - 2 * of_cholesky(n)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_to_invert_a_triangle_takes_what_a_factor_does(n: int) -> None:
    tally = Tally()
    lower = tally.of(np.tril(np.ones((n, n))) + np.eye(n))
    inverse = np.zeros((n, n), dtype=object)
    for j in range(n):
        inverse[j, j] = tally.of(1.0)[()] / lower[j, j]
        for i in range(j + 1, n):
            inverse[i, j] = -sum(lower[i, p] * inverse[p, j] for p in range(j, i)) / lower[i, i]
    assert of_cholesky(n) == tally.count
    np.testing.assert_allclose(lower.astype(float) @ inverse.astype(float), np.eye(n), atol=1e-12)


def test_memory_is_what_is_kept() -> None:
    kernel = weighted_convolutional_kendall(9, 4)
    naive, feature = (made(kind, kernel, Arithmetic(), c=2, capacity=7) for kind in (NaiveApproach, FeatureApproach))
    for context, (shown, *_), reward in zip(*stream(9, 4, 2, 7, 3), strict=True):
        naive.update(context, shown, float(reward))
        feature.update(context, shown, float(reward))
    assert naive.memory_bytes == naive._matrix.nbytes
    assert feature.memory_bytes == feature._indices.nbytes + feature._values.nbytes
