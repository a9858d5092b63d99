"""Whether the search finds the best slate: against every ranking, and against a known maximiser."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from figures import Bench, Figure, Outcome, mean_with_error
from topk_bandit.domain.bandits import Exploration, Kernel, PaperBeta
from topk_bandit.learning.decisions import search_best
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import all_rankings, random_rankings
from topk_bandit.learning.search import local_search
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.decisions import Search
    from topk_bandit.learning.rankings import Rankings

__all__ = ["exhaustive", "figure4"]

TRIALS = 100
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class _Reached:
    """One search: how far it fell short, relative to the optimum, and what it cost."""

    observations: int
    shortfall: float
    evaluations: int


def exhaustive(bench: Bench) -> Outcome:
    """Compare the slates that the policy decides for with the best of all, by the bound that it draws for the round."""
    seeds = range(bench.scaled(TRIALS, 16))
    results = bench.each(_against_all, seeds)
    reached = [result.shortfall <= TOLERANCE for result in results]
    shortfalls = [result.shortfall for result in results]
    return Outcome(
        [
            Figure("reached_share", f"optimum reached, of {len(results)} posteriors", float(np.mean(reached)), "share"),
            Figure("largest_shortfall", "largest shortfall of the bound", float(np.max(shortfalls)), "share"),
            Figure("evaluations", "rankings evaluated, mean", float(np.mean([r.evaluations for r in results]))),
        ],
        {"n": 20, "k": 3, "C": 5, "pending": _PENDING, "seeds": len(results), "tolerance": TOLERANCE}
        | {"observations": [result.observations for result in results]},
    )


_PENDING = 5


def _against_all(seed: int) -> _Reached:
    rng = np.random.default_rng([seed, 1])
    shop = Shop.random(rng, n_items=20, slate_size=3)
    observations = round(math.exp(rng.uniform(0.0, math.log(400.0))))
    state = _informed(shop, observations, rng)
    exploration = Exploration(PaperBeta(Settings().beta_scale), uniform_share=0.0)
    items = np.arange(20, dtype=np.int32)
    context = shop.customers[int(rng.integers(len(shop.customers)))]
    encoded = state.encode(context)
    search = search_best(state, exploration, encoded, items)
    drawn = _drawn_parts(state, search, encoded)

    def bounds_of(rankings: Rankings) -> NDArray[np.float64]:
        mean, variance = state.predict(context, rankings)
        more = state.posterior.kernel.item_weight * drawn[rankings]
        return np.asarray(mean + more.sum(axis=1) + math.sqrt(search.beta) * np.sqrt(variance))

    best = float(bounds_of(all_rankings(search.items, slate_size=3)).max())
    reached = float(bounds_of(search.ranking[None])[0])
    return _Reached(observations, (best - reached) / abs(best), search.evaluations)


def _drawn_parts(state: State, search: Search, context: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much each item's part of the means was drawn away from its mean; 0 for those not looked at."""
    drawn, n_looked_at = np.zeros(state.posterior.kernel.n_items), len(search.items)
    weights = state.posterior.at(context, search.items).contraction.weights
    drawn[search.items] = (search.drawn.contraction.weights - weights)[:n_looked_at]
    return drawn


def _informed(shop: Shop, observations: int, rng: np.random.Generator) -> State:
    """Return what the service would know after rewards of random slates, with the newest slates pending."""
    n_items, context_dim = shop.items.shape
    kernel = kernel_of(Kernel.WEIGHTED_CONVOLUTIONAL, n_items, shop.slate_size)
    state = State.initial(kernel, context_dim=context_dim, limits=Limits())
    slates = random_rankings(np.arange(n_items), slate_size=shop.slate_size, count=observations + _PENDING, rng=rng)
    for number, slate in enumerate(slates):
        customer = int(rng.integers(len(shop.customers)))
        context = shop.customers[customer]
        if number < observations:
            state = state.rewarded(str(number), context, slate, reward=shop.draw(customer, slate, rng))
        else:
            state = state.shown(str(number), context, slate)
    return state


def figure4(bench: Bench) -> Outcome:
    """Look for the ranking that is most similar to a hidden one: the hidden one itself (paper, Figure 4)."""
    trials = bench.scaled(TRIALS, 10)
    jobs = [(kind, seed) for kind in _NAMES for seed in range(trials)]
    values = dict(zip(jobs, bench.each(_similarity_found, jobs), strict=True))
    figures = []
    for kind, name in _NAMES.items():
        mine = [values[kind, seed] for seed in range(trials)]
        found = float(np.mean([value > 1.0 - 1e-9 for value in mine]))
        figures.append(Figure(f"{kind}_found_share", f"{name}: maximiser found, of {trials} trials", found, "share"))
        figures.append(mean_with_error(f"{kind}_value", f"{name}: similarity of what was found (best: 1)", mine))
    return Outcome(figures, {"n": 50, "k": 6, "starts": "the search's own random ones", "seeds": trials})


_NAMES = {Kernel.WEIGHTED_CONVOLUTIONAL: "WCK", Kernel.CONVOLUTIONAL: "CK", Kernel.WEIGHTED: "WK"}


def _similarity_found(job: tuple[Kernel, int]) -> float:
    kind, seed = job
    rng = np.random.default_rng([seed, 2])
    kernel, items = kernel_of(kind, 50, 6), np.arange(50, dtype=np.int32)
    (hidden,) = random_rankings(items, slate_size=6, count=1, rng=rng)
    # With one reward of 1 the mean of a ranking is its similarity to the hidden one, times a constant.
    prior = Posterior.prior(kernel, context_dim=1, noise_variance=0.1)
    at_context = prior.observe([1.0], hidden, 1.0).at([1.0], items)
    found = local_search(
        at_context, ItemDraws(at_context).covariance, beta=0.0, starts=np.zeros((0, 6), dtype=np.int32), rng=rng
    )
    return float(kernel.gram(found.ranking, hidden)[0, 0])
