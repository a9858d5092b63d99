"""Two things that every decision and every reward need, beside GPyTorch: a whole neighbourhood, and one more row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

import peers
from figures import Bench, Figure, Outcome
from played import WIDE, Played, shown_at_random
from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.paper.dense_posterior import pair_features
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from exact_gp import ExactGp
    from topk_bandit.learning.context_posterior import ContextPosterior, Moments

    Floats = NDArray[np.float64]
    Contestant = Callable[[NDArray[np.float64], NDArray[np.int32]], float]

__all__ = ["append", "neighbourhood"]

ROWS, REPEATS, TURN = 1000, 60, 4
WCK = Kernel.WEIGHTED_CONVOLUTIONAL
SETTINGS: dict[str, object] = {"n": 50, "k": 6, "C": 5, "rows": ROWS, "rows_from": "random slates", "threads": 1}


def neighbourhood(bench: Bench) -> Outcome:
    """Time mean and variance of all 264 slates with one item replaced, at 1,000 rows, in turns."""
    rng = np.random.default_rng(7)
    shop, absent = Shop.random(rng), peers.absent(peers.GPYTORCH)
    bandit = shown_at_random(shop, rng, rewards=ROWS, pending=0, limits=WIDE, kernel=WCK)
    ours = _Neighbourhoods(bandit)
    contestants: dict[str, Contestant] = {
        "with_at": ours.seconds_with_contraction,
        "first": ours.seconds_of_first,
        "further": ours.seconds_of_further,
    }
    models = {} if absent else _models(bandit)
    contestants |= {name: _predicting(model) for name, model in models.items()}
    seconds = _in_turns(bench, contestants, shop, rng, repeats=bench.scaled(REPEATS, 4))
    labels = {
        "with_at": "264 slates, with the contraction to the context",
        "first": "264 slates, the first after the contraction",
        "further": "264 slates, one step of a climb further",
    }
    figures = _figures(labels, seconds)
    if models:
        best = min(models, key=lambda name: float(np.median(seconds[name])))
        peer, mine = float(np.median(seconds[best])), {name: float(np.median(seconds[name])) for name in labels}
        figures += [
            Figure("ratio", f"GPyTorch ({best}) / one step of a climb further", peer / mine["further"], "x"),
            Figure("ratio_first", "GPyTorch / the first after the contraction", peer / mine["first"], "x"),
            Figure("ratio_with_at", "GPyTorch / with the contraction", peer / mine["with_at"], "x"),
            *_agreement(bandit, models[best], shop, rng),
        ]
    return Outcome(figures, SETTINGS, absent)


def append(bench: Bench) -> Outcome:
    """Time taking in one observation at 1,000 rows, until its slate can be predicted anew, in turns."""
    rng = np.random.default_rng(8)
    shop, absent = Shop.random(rng), peers.absent(peers.GPYTORCH)
    bandit = shown_at_random(shop, rng, rewards=ROWS, pending=0, limits=WIDE, kernel=WCK)
    growing = _Growing(bandit)
    contestants: dict[str, Contestant] = {"observe": growing.observe, "shown_rewarded": growing.show_and_reward}
    for name, model in ({} if absent else _models(bandit)).items():
        contestants |= _conditioning(name, model)
    seconds = _in_turns(bench, contestants, shop, rng, repeats=bench.scaled(REPEATS // 3, 4))
    labels = {"observe": "Posterior.observe", "shown_rewarded": "State.shown, then State.rewarded"}
    figures = _figures(labels, seconds)
    if not absent:
        theirs = {name: float(np.median(took)) for name, took in seconds.items() if name not in labels}
        best, mine = min(theirs, key=theirs.__getitem__), float(np.median(seconds["shown_rewarded"]))
        figures += [
            Figure("ratio", f"GPyTorch ({best}) / shown and rewarded", theirs[best] / mine, "x"),
            Figure("ratio_observe", "GPyTorch / observe", theirs[best] / float(np.median(seconds["observe"])), "x"),
        ]
    return Outcome(figures, SETTINGS, absent)


class _Neighbourhoods:
    """All replacements of a slate's items, by the service's posterior."""

    def __init__(self, bandit: Played) -> None:
        self._posterior = bandit.state.posterior
        self._items = np.arange(self._posterior.kernel.n_items, dtype=np.int32)
        self._positions = range(self._posterior.kernel.slate_size)

    def seconds_with_contraction(self, context: Floats, ranking: NDArray[np.int32]) -> float:
        return _timed(lambda: self.moments(context, ranking))

    def seconds_of_first(self, context: Floats, ranking: NDArray[np.int32]) -> float:
        at_context = self._posterior.at(context, self._items)
        return _timed(lambda: self._around(at_context, ranking))

    def seconds_of_further(self, context: Floats, ranking: NDArray[np.int32]) -> float:
        """Return the seconds at the best neighbour by mean; all that a decision looks at shares one contraction."""
        at_context = self._posterior.at(context, self._items)
        means = np.concatenate([one.mean for one in self._around(at_context, ranking)])
        means[:, ranking] = -np.inf
        position, item = np.unravel_index(int(np.argmax(means)), means.shape)
        better = ranking.copy()
        better[position] = item
        return _timed(lambda: self._around(at_context, better))

    def moments(self, context: Floats, ranking: NDArray[np.int32]) -> tuple[Floats, Floats]:
        """Return means and variances, both (k, n): by position and by the item there."""
        found = self._around(self._posterior.at(context, self._items), ranking)
        return np.concatenate([one.mean for one in found]), np.concatenate([one.variance for one in found])

    def _around(self, at_context: ContextPosterior, ranking: NDArray[np.int32]) -> list[Moments]:
        return [at_context.replacements(ranking[None], position) for position in self._positions]


class _Growing:
    """A posterior and a state that take in one slate after the other, each as a successor of the last."""

    def __init__(self, bandit: Played) -> None:
        self._posterior, self._state = bandit.state.posterior, bandit.state

    def observe(self, context: Floats, ranking: NDArray[np.int32]) -> float:
        start = time.perf_counter()
        self._posterior = self._posterior.observe(context, ranking, 0.5)
        return time.perf_counter() - start

    def show_and_reward(self, context: Floats, ranking: NDArray[np.int32]) -> float:
        start = time.perf_counter()
        self._state = self._state.shown("new", context, ranking).rewarded("new", context, ranking, reward=0.5)
        return time.perf_counter() - start


def _models(bandit: Played) -> dict[str, ExactGp]:
    from exact_gp import VARIANTS, ExactGp  # noqa: PLC0415 - an optional peer

    posterior, contexts = bandit.state.posterior, np.array(bandit.contexts)
    features = pair_features(np.array(bandit.rankings), posterior.kernel.n_items)
    rewards = np.array(bandit.rewards)
    models = {str(one): ExactGp(posterior, contexts, features, rewards, one) for one in VARIANTS}
    for model in models.values():  # fills its caches
        model.predict(model.inputs(contexts[:1], features[:1]))
    return models


def _replaced(ranking: NDArray[np.int32], n_items: int) -> tuple[NDArray[np.int32], NDArray[np.intp], NDArray[np.intp]]:
    """Return the neighbours of a ranking, and the position and the item in which each differs."""
    outside = np.setdiff1d(np.arange(n_items), ranking)
    positions, items = np.repeat(np.arange(len(ranking)), len(outside)), np.tile(outside, len(ranking))
    neighbours = np.tile(ranking, (len(items), 1))
    neighbours[np.arange(len(items)), positions] = items
    return neighbours, positions, items


def _inputs(model: ExactGp, context: Floats, rankings: NDArray[np.int32], n_items: int) -> object:
    return model.inputs(np.tile(context, (len(rankings), 1)), pair_features(rankings, n_items))


def _predicting(model: ExactGp, n_items: int = 50) -> Contestant:
    def seconds(context: Floats, ranking: NDArray[np.int32]) -> float:
        return model.predict(_inputs(model, context, _replaced(ranking, n_items)[0], n_items))[0]

    return seconds


def _conditioning(name: str, model: ExactGp, n_items: int = 50) -> dict[str, Contestant]:
    return {
        f"get_fantasy_model, {name}": lambda context, ranking: model.seconds_to_condition(
            _inputs(model, context, ranking[None], n_items), 0.5
        ),
        f"set_train_data, {name}": lambda context, ranking: model.seconds_to_start_again(
            _inputs(model, context, ranking[None], n_items), 0.5
        ),
    }


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _in_turns(
    bench: Bench, contestants: Mapping[str, Contestant], shop: Shop, rng: np.random.Generator, *, repeats: int
) -> dict[str, list[float]]:
    """Return the seconds of each contestant, for random customers and slates, a few times each in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    items = np.arange(len(shop.items))
    for done in range(0, repeats, TURN):
        for name, timed in contestants.items():
            slates = random_rankings(items, slate_size=shop.slate_size, count=1 + TURN, rng=rng)
            contexts = shop.customers[rng.integers(len(shop.customers), size=1 + TURN)]
            took = [timed(context, slate) for context, slate in zip(contexts, slates, strict=True)]
            seconds[name] += took[1:]  # the first of each turn finds the others' data in the processor's caches
        bench.report(done + TURN, repeats)
    return seconds


def _figures(labels: Mapping[str, str], seconds: Mapping[str, Sequence[float]]) -> list[Figure]:
    """Return the median of each contestant with half the distance between the quartiles."""
    figures = []
    for name, took in seconds.items():
        low, median, high = np.percentile(np.array(took) * 1e3, (25, 50, 75))
        label = labels.get(name, f"GPyTorch, {name}")
        figures.append(Figure(_key(name), label, float(median), "ms", error=float(high - low) / 2))
    return figures


def _key(name: str) -> str:
    return name.replace(", ", "_")


def _agreement(bandit: Played, model: ExactGp, shop: Shop, rng: np.random.Generator) -> list[Figure]:
    """Return how far the two are from each other over one neighbourhood, relative to the spread there."""
    context = shop.customers[0]
    (ranking,) = random_rankings(np.arange(len(shop.items)), slate_size=shop.slate_size, count=1, rng=rng)
    neighbours, positions, items = _replaced(ranking, len(shop.items))
    mean, variance = _Neighbourhoods(bandit).moments(context, ranking)
    _, their_mean, their_variance = model.predict(_inputs(model, context, neighbours, len(shop.items)))
    spread = float(np.sqrt(their_variance).mean())
    return [
        Figure(
            "mean_difference",
            "largest difference of the means, in standard deviations",
            float(np.abs(mean[positions, items] - their_mean).max()) / spread,
        ),
        Figure(
            "variance_difference",
            "largest relative difference of the variances",
            float(np.abs(variance[positions, items] / their_variance - 1.0).max()),
        ),
    ]
