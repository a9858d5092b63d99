"""How good the slates are that the service's search finds: against the paper's own search for the best UCB."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from figures import Bench, Figure, Outcome, mean_with_error
from played import BEST_BY_UCB, Played, played, shown_at_random
from topk_bandit.domain.bandits import Kernel
from topk_bandit.lab.paper.dense_posterior import DenseAtContext, pair_features
from topk_bandit.lab.paper.local_search import CANDIDATES, RESTARTS, Orders, PaperFound, paper_search
from topk_bandit.learning.acquisition import paper_beta
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.rankings import log_count
from topk_bandit.learning.search import best_seen, local_search
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["dense_posterior", "quality"]

POSTERIORS, ROWS, MOST_PENDING = 200, 256, 20
TOLERANCE = 1e-6
KINDS = (("random slates, 40 customers", 40), ("random slates, 5", 5), ("own slates, 40", 40), ("own slates, 5", 5))


@dataclass(frozen=True, slots=True)
class _Compared:
    """One posterior: our UCB less the paper's, by the dense posterior, in its standard deviations there; seconds.

    `claimed` is how far the UCB that the posterior tells is from the dense one, relative.
    """

    seed: int
    kind: int
    reached: bool
    better: bool
    difference: float
    claimed: float
    ours_seconds: float
    paper_seconds: float
    evaluations: int
    paper_evaluations: int
    longest_climb: int


class _Weighed(TypedDict):
    """The part of `_Compared` that the dense posterior tells."""

    reached: bool
    better: bool
    difference: float
    claimed: float


def quality(bench: Bench) -> Outcome:
    """Compare the UCB that the search reaches with what the paper's search reaches, on bandits of 256 rewards."""
    found = bench.each(_compared, range(bench.scaled(POSTERIORS, 8)))
    shortfalls = [max(0.0, -one.difference) for one in found]
    reached = [one.reached for one in found]
    figures = [
        mean_with_error(
            "reached_share", f"the paper's value reached, of {len(found)} posteriors", reached, unit="share"
        ),
        *_by_kind(found),
        mean_with_error("shortfall", "mean shortfall, in posterior standard deviations", shortfalls, unit="share"),
        Figure("worst_shortfall", "largest shortfall", float(np.max(shortfalls)), "share"),
        Figure(
            "better_share", "better than the paper's search", float(np.mean([one.better for one in found])), "share"
        ),
        Figure(
            "mean_difference", "mean of ours less the paper's", float(np.mean([one.difference for one in found])), "sd"
        ),
        Figure("claimed", "UCB told against the dense one, largest relative difference", max(o.claimed for o in found)),
        *_costs(found),
    ]
    short = {one.seed: one.difference for one in found if not one.reached}
    return Outcome(figures, {**_settings(len(found)), "seeds_not_reached_by_sd": short})


def _settings(posteriors: int) -> dict[str, object]:
    return {
        "n": 50,
        "k": 6,
        "C": 5,
        "rewards": ROWS,
        "pending": [0, MOST_PENDING],
        "posteriors": posteriors,
        "kinds": [kind for kind, _ in KINDS],
        "reached_within": f"{TOLERANCE:g} of the paper's UCB, both by a dense float64 posterior",
        "paper_search": f"best {RESTARTS} of {CANDIDATES} random slates, steepest ascent over all 190,800 neighbours",
    }


def _by_kind(found: list[_Compared]) -> list[Figure]:
    figures = []
    for number, (kind, _) in enumerate(KINDS):
        reached = [one.reached for one in found if one.kind == number]
        figures.append(Figure(f"reached_share_{number}", f"    {kind}", float(np.mean(reached)), "share"))
    return figures


def _costs(found: list[_Compared]) -> list[Figure]:
    """Return medians; both processes of the benchmark are busy meanwhile."""

    def median(name: str) -> float:
        return float(np.median([getattr(one, name) for one in found]))

    return [
        Figure("seconds", "time of a decision, median", median("ours_seconds") * 1e3, "ms"),
        Figure(
            "paper_seconds", "time of the paper's search, compiled by matrix products", median("paper_seconds"), "s"
        ),
        Figure("evaluations", "rankings evaluated by a search, median", median("evaluations")),
        Figure("paper_evaluations", "rankings evaluated by the paper's search, median", median("paper_evaluations")),
        Figure("longest_climb", "moves of the paper's longest climb", max(one.longest_climb for one in found)),
    ]


def _compared(seed: int) -> _Compared:
    rng, kind = np.random.default_rng([seed, 9]), seed % len(KINDS)
    shop = Shop.random(rng, n_customers=KINDS[kind][1])
    build = shown_at_random if kind < 2 else played
    pending, wck = int(rng.integers(MOST_PENDING + 1)), Kernel.WEIGHTED_CONVOLUTIONAL
    bandit = build(shop, rng, rewards=ROWS, pending=pending, kernel=wck)
    context = shop.customers[int(rng.integers(len(shop.customers)))]
    orders, beta = Orders.of(len(shop.items), shop.slate_size), _beta(bandit)
    ours, ours_seconds = _searched(bandit, context, beta, rng), _decided(bandit, context, rng)
    dense = dense_posterior(bandit, shop, context)
    start = time.perf_counter()
    found = paper_search(dense, orders, beta=beta, rng=rng)
    paper_seconds = time.perf_counter() - start
    return _Compared(
        seed=seed,
        kind=kind,
        **_weighed(dense, len(shop.items), ours, found, beta),
        ours_seconds=ours_seconds,
        paper_seconds=paper_seconds,
        evaluations=ours.evaluations,
        paper_evaluations=found.evaluations,
        longest_climb=found.longest_climb,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Ours:
    """Where the service's search ends, and the UCB that it believes to have reached there."""

    ranking: NDArray[np.int32]
    bound: float
    evaluations: int


def _searched(bandit: Played, context: Floats, beta: float, rng: np.random.Generator) -> _Ours:
    """Search as a decision does, but for the draw of the items' parts, which moves means for any search alike."""
    posterior = bandit.state.posterior
    at = posterior.at(context, np.arange(posterior.kernel.n_items, dtype=np.int32))
    found = local_search(at, ItemDraws(at).covariance, beta=beta, starts=best_seen(at), rng=rng)
    mean, variance = posterior.predict(context, found.ranking[None])
    return _Ours(found.ranking, float(mean[0] + math.sqrt(beta * variance[0])), found.evaluations)


def _decided(bandit: Played, context: Floats, rng: np.random.Generator) -> float:
    """Return the seconds of a decision."""
    items = np.arange(bandit.state.posterior.kernel.n_items, dtype=np.int32)
    decide(bandit.state, BEST_BY_UCB, context=context, eligible=items, rng=rng)
    start = time.perf_counter()
    decide(bandit.state, BEST_BY_UCB, context=context, eligible=items, rng=rng)
    return time.perf_counter() - start


def _beta(bandit: Played) -> float:
    """Return what a decision now multiplies the variance with."""
    kernel, round_number = bandit.state.posterior.kernel, bandit.state.observations + 1
    log_n_slates = log_count(kernel.n_items, kernel.slate_size)
    return paper_beta(Settings().beta_scale, log_n_arms=log_n_slates, round_number=round_number)


def dense_posterior(bandit: Played, shop: Shop, context: Floats) -> DenseAtContext:
    """Return the dense posterior of all that a bandit was shown and told."""
    pending = [(shop.customers[customer], ranking) for _, customer, ranking in bandit.waiting]
    contexts = np.array([*bandit.contexts, *(shown for shown, _ in pending)])
    rankings = np.array([*bandit.rankings, *(ranking for _, ranking in pending)])
    posterior = bandit.state.posterior
    return DenseAtContext.of(
        contexts,
        pair_features(rankings, len(shop.items)),
        np.array(bandit.rewards),
        context=context,
        noise_variance=posterior.noise_variance,
        offset=posterior.offset,
        amplitude=posterior.amplitude,
    )


def _weighed(dense: DenseAtContext, n_items: int, found_by_us: _Ours, found: PaperFound, beta: float) -> _Weighed:
    mean, variance = dense.moments(pair_features(np.array([found_by_us.ranking, found.ranking]), n_items))
    ours, paper = (mean + math.sqrt(beta) * np.sqrt(variance)).tolist()
    allowed = TOLERANCE * max(abs(paper), 1.0)
    return {
        "reached": ours >= paper - allowed,
        "better": ours > paper + allowed,
        "difference": (ours - paper if abs(ours - paper) > allowed else 0.0) / math.sqrt(variance[1]),
        "claimed": abs(found_by_us.bound - ours) / abs(ours),
    }
