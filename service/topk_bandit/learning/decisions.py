"""The decision: which slate to show for a context, how likely it was to be shown, and what is known of it.

A state in, a slate out (Algorithm 1, with UCB and local search). The best slate by the acquisition function is a
function of the state; randomness comes in by the exploration's shares alone, and so the propensities are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.domain.bandits import ConstantBeta, Exploration
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.acquisition import paper_beta
from topk_bandit.learning.item_draws import ItemDraws
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.learning.rankings import NO_ITEMS, log_count, validated_items
from topk_bandit.learning.scales import spread_of_slope
from topk_bandit.learning.search import best_seen, local_search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.allowed_slates import AllowedSlates
    from topk_bandit.learning.context_posterior import ContextPosterior
    from topk_bandit.learning.item_draws import RegretFigures
    from topk_bandit.learning.policy import State
    from topk_bandit.learning.posterior import Posterior
    from topk_bandit.learning.slate_rules import SlateRules

__all__ = ["Decision", "Search", "StandIns", "decide", "search_best", "slates_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """A slate and what is known of it.

    Attributes
    ----------
    ranking
        Item indices, best first, shape (k,).
    best
        The best slate by the acquisition function, shape (k,): `ranking` unless that was drawn.
    propensity
        Exact probability of this ranking, given the state, the context and the eligible items.
    position_propensities
        Exact probabilities of showing each of its items at its position, shape (k,).
    mean, standard_deviation
        Moments of its expected reward, given the rewards. Until two rewards differ there is no unit, and the mean is
        the value of all of them: 0 before the first.
    regret_bound, estimated_regret
        As in `topk_bandit.domain.slates.Recommendation`, given the rewards.
    explored
        Whether one of the exploration's shares drew it.
    evaluations
        Rankings that the search evaluated.
    """

    ranking: NDArray[np.int32]
    best: NDArray[np.int32]
    propensity: float
    position_propensities: NDArray[np.float64]
    mean: float
    standard_deviation: float
    regret_bound: float
    estimated_regret: float
    explored: bool
    evaluations: int


def decide(
    state: State,
    exploration: Exploration,
    *,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    rng: np.random.Generator,
    allowed: AllowedSlates | None = None,
) -> Decision:
    """Choose a slate for a context.

    The best slate by UCB is a function of the state, the context and the eligible items alone; `rng` only decides
    whether the exploration draws a slate instead, and which. So the propensities are exact.

    Parameters
    ----------
    context
        Shape (C,).
    eligible
        Distinct item indices in ascending order, at least k of them.
    rng
        Source of the exploration's randomness.
    allowed
        The slates that rules allow, as places of eligible items; the rules leave all of these, and some slate keeps
        them. None: all slates.
    """
    context, slate_size = state.encode(context), state.posterior.kernel.slate_size
    if len(eligible) < slate_size:
        raise InvalidArgumentError("eligible", f"a slate needs {slate_size} items, got {len(eligible)}")
    validated_items(eligible, n_items=state.posterior.kernel.n_items)
    if allowed is not None and allowed.rules.allow_all:
        allowed = None
    best = search_best(state, exploration, context, eligible, allowed=allowed)
    slates = slates_of(state, exploration, best, eligible, allowed)
    shown, explored = slates.draw(rng)
    moments = state.widen(state.posterior.predict(context, shown[None], with_pending=False))
    regret = _regret_of(state, context, best, shown, eligible=eligible, allowed=allowed)
    return Decision(
        ranking=shown,
        best=best.ranking,
        propensity=slates.propensity(shown),
        position_propensities=slates.position_propensities(shown),
        mean=float(moments.mean[0]) if state.posterior.rewards_vary else state.posterior.best_offset,
        standard_deviation=math.sqrt(float(moments.variance[0])),
        regret_bound=state.spread_factor * regret.bound,
        estimated_regret=regret.estimate,
        explored=explored,
        evaluations=best.evaluations,
    )


def slates_of(
    state: State,
    exploration: Exploration,
    best: Search,
    eligible: NDArray[np.int32],
    allowed: AllowedSlates | None = None,
) -> SlateDistribution:
    """Return the distribution that a decision draws its slate from, once the best one is found."""
    return SlateDistribution.of(_shares_now(exploration, state), best.ranking, eligible, allowed)


def _shares_now(exploration: Exploration, state: State) -> Exploration:
    """Return the exploration with the shares that it has by now; where rewards age, they stay."""
    return exploration.after(state.remembered) if math.isinf(state.half_life) else exploration


DRAW_WIDTH = 0.2
"""Width of the draw of the items' parts, in units of that of the upper confidence bound."""

SLOPE_DRAW_WIDTH = 1.0
"""Width of the draw of a prior mean's slope, in units of its posterior standard deviation."""


class Search(NamedTuple):
    """Where the search for the best slate by the acquisition function ended, and what it was found by.

    Attributes
    ----------
    ranking, places
        The best slate as item indices, and as positions in `items`, both (k,).
    items
        The items that were looked at, ascending, shape (E,).
    drawn
        The posterior at the context, with means as in the draw: the acquisition function is its mean + sqrt(beta) sd.
    beta
        As of the upper confidence bound.
    draws
        The posterior of the items' parts, by which the one draw was made.
    unseen
        Those of `items` that no row has shown and that stand for all such items, and how many these are.
    evaluations
        Rankings that were evaluated.
    """

    ranking: NDArray[np.int32]
    items: NDArray[np.int32]
    places: NDArray[np.int32]
    drawn: ContextPosterior
    beta: float
    draws: ItemDraws
    unseen: StandIns
    evaluations: int


class StandIns(NamedTuple):
    """Items that stand for `total`, themselves among them: all alike as far as is known. There may be none."""

    items: NDArray[np.int32]
    total: int


def search_best(
    state: State,
    exploration: Exploration,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    *,
    with_draws: bool = True,
    allowed: AllowedSlates | None = None,
) -> Search:
    """Search for the best slate: a function of the state, the encoded context and the eligible items.

    It has the largest mean + sqrt(beta) (sd + DRAW_WIDTH d), with d of a draw of the items' parts. The bound alone
    prefers slates of which every item is little known; a draw alone seldom tries what only a pair can make good. With a
    prior mean the slope is drawn too: the slates that it puts first hardly tell how far to follow it. Without draws it
    has the largest upper confidence bound.
    """
    rng = _rng_of(state, eligible)
    believed = _with_slope_drawn(state, eligible) if with_draws else state.posterior
    shown_counts = state.posterior.shown_counts()
    items = _items_to_search(believed, context, eligible, shown_counts, rng)
    if allowed is not None:
        items = _with_each_type(items, believed, context, eligible, allowed)
    at_context = state.posterior.at(context, items)
    beta = state.spread_factor**2 * _beta(exploration, state, eligible, shown_counts)
    draws = ItemDraws(at_context)
    # Before the first reward there is nothing to explore around: what is believed is shown.
    drawn = at_context
    if state.posterior.n_rows and with_draws:
        drawn = draws.shift(DRAW_WIDTH * math.sqrt(beta), rng)
        drawn = _with_means_of(drawn, believed, context, slope=state.posterior.slope)
    ruled = _rules_of(allowed, eligible, items)
    found = local_search(drawn, draws.covariance, *ruled, beta=beta, starts=best_seen(drawn), rng=rng)
    unseen = _unseen_among(state.posterior, items, eligible, shown_counts)
    return Search(items[found.ranking], items, found.ranking, drawn, beta, draws, unseen, found.evaluations)


def _rules_of(
    allowed: AllowedSlates | None, eligible: NDArray[np.int32], items: NDArray[np.int32]
) -> tuple[SlateRules | None, NDArray[np.int64] | None]:
    """Return the rules over some of the eligible items, and a slate of these that keeps them."""
    if allowed is None:
        return None, None
    if len(items) == len(eligible):
        return allowed.rules, allowed.anchor
    return allowed.rules.among(np.searchsorted(eligible, items)), np.searchsorted(items, eligible[allowed.anchor])


def _with_each_type(
    items: NDArray[np.int32],
    posterior: Posterior,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    allowed: AllowedSlates,
) -> NDArray[np.int32]:
    """Return items to search with those that rules ask for: some slate's, and k of each type, with the largest means.

    What items stand for is items that are as good. To rules they are the same only in the same groups. Of many types
    those are left out whose items have small means, unless a slate needs some of them.
    """
    if len(items) == len(eligible):
        return items
    k, rules = posterior.kernel.slate_size, allowed.rules
    means = posterior.item_means(context, eligible)
    needed = [allowed.anchor]
    best: list[NDArray[np.intp]] = []
    for one in allowed.types:
        first = one.items[np.argsort(-means[one.items], kind="stable")[:k]]
        is_asked_for = len(one.positions) < k or any(rules.least[group] for group in one.groups)
        (needed if is_asked_for else best).append(first)
    others = np.concatenate([*best, np.empty(0, dtype=np.intp)])
    others = others[np.argsort(-means[others], kind="stable")[:MOST_ITEMS_TO_SEARCH]]
    return np.union1d(items, eligible[np.concatenate([*needed, others])]).astype(np.int32)


def _unseen_among(
    posterior: Posterior, items: NDArray[np.int32], eligible: NDArray[np.int32], shown_counts: NDArray[np.intp]
) -> StandIns:
    """Return which of the searched items stand for more of the eligible ones; none where these differ."""
    alike = posterior.prior_mean is None and posterior.kernel.counted_content is None
    new = items[shown_counts[items] == 0] if alike else NO_ITEMS
    return StandIns(new, int(np.count_nonzero(shown_counts[eligible] == 0)))


def _with_slope_drawn(state: State, eligible: NDArray[np.int32]) -> Posterior:
    """Return the posterior at a slope that is drawn from what is believed of it, if it has a prior mean and rewards."""
    posterior = state.posterior
    if posterior.prior_mean is None or not posterior.n_rows:
        return posterior
    drawn = float(_rng_of(state, eligible, _OF_SLOPE).standard_normal())
    slope = posterior.slope + SLOPE_DRAW_WIDTH * spread_of_slope(posterior) * drawn
    return posterior.rescale(offset=posterior.offset_at(slope), slope=slope, amplitude=posterior.amplitude)


def _with_means_of(
    at: ContextPosterior, believed: Posterior, context: NDArray[np.float64], *, slope: float
) -> ContextPosterior:
    """Return a posterior at a context that was contracted at a slope, with the items' means at that of `believed`."""
    if believed.slope == slope:
        return at
    weights = at.contraction.weights.copy()
    change = (believed.slope - slope) * believed.weights_of_slope(context, at.items)
    weights[: 2 * len(at.items)] += change.reshape(-1)
    return replace(at, contraction=at.contraction._replace(weights=weights))


_OF_FIGURES, _OF_SLOPE = 1, 2


def _rng_of(state: State, items: NDArray[np.int32], *stream: int) -> np.random.Generator:
    """Return a generator that is seeded by the state's counts: the same state gives the same numbers in a stream."""
    return np.random.default_rng([state.observations, state.posterior.n_pending, len(items), *stream])


def _regret_of(
    state: State,
    context: NDArray[np.float64],
    best: Search,
    shown: NDArray[np.int32],
    *,
    eligible: NDArray[np.int32],
    allowed: AllowedSlates | None,
) -> RegretFigures:
    """Return figures of a slate's regret; one that was drawn may have items that were not searched.

    They depend on rewards alone: slates that wait for theirs narrow what is explored next, and change no figure yet.
    """
    items, draws, best_places, places = best.items, best.draws, best.places, best.places
    if shown is not best.ranking:
        if not np.isin(shown, items).all():
            items = np.union1d(items, shown)
            draws = ItemDraws(state.posterior.at(context, items))
        places, best_places = (np.searchsorted(items, slate).astype(np.int32) for slate in (shown, best.ranking))
    new, count = best.unseen
    if len(new):
        # Those that are shown are no longer any of many: their parts are drawn as they are.
        new = np.setdiff1d(new, shown)
        count -= len(best.unseen.items) - len(new)
    # Not the numbers that the slate was chosen by: in that draw it would be the best one for sure.
    rng, standing = _rng_of(state, items, _OF_FIGURES), np.searchsorted(items, new)
    rules, anchor = _rules_of(allowed, eligible, items)
    return draws.without_pending().regret_of(places, best_places, rng, standing, count, rules=rules, anchor=anchor)


MOST_ITEMS_TO_SEARCH = 256

NEW_PER_PLACE = 4
"""So many items that were never shown stand for the rest, for each place of a slate, where they differ by features."""


def _items_to_search(
    posterior: Posterior,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    shown_counts: NDArray[np.intp],
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Return the eligible items that the search looks at, ascending.

    Items that no row has shown are alike but for the prior mean and what their features tell, so a few stand for the
    rest (`_stand_ins`). Of those that were shown there may still be more than a search can look at: then three quarters
    are those with the largest means, the others the least shown.
    """
    counts, k = shown_counts[eligible], posterior.kernel.slate_size
    most_new = NEW_PER_PLACE * k if _looks_at_more(posterior) else k
    known, new = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if len(new) <= most_new and len(known) <= MOST_ITEMS_TO_SEARCH:
        return eligible
    if len(new) > most_new:
        new = _stand_ins(posterior, context, eligible, new, rng)
    most_known = max(MOST_ITEMS_TO_SEARCH - most_new, k)
    if len(known) > most_known:
        by_mean = known[np.argsort(-posterior.item_means(context, eligible[known]), kind="stable")]
        rest = by_mean[most_known * 3 // 4 :]
        rarest = rest[np.argsort(counts[rest], kind="stable")]
        known = np.concatenate([by_mean[: most_known * 3 // 4], rarest[: most_known - most_known * 3 // 4]])
    return np.asarray(eligible[np.sort(np.concatenate([known, new]))], dtype=np.int32)


def _stand_ins(
    posterior: Posterior,
    context: NDArray[np.float64],
    eligible: NDArray[np.int32],
    new: NDArray[np.intp],
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Return places of `new` that stand for the rest: any k, or those with the largest means, ties at random.

    Means differ by a prior mean or by content. Where content counts, or items are many, more stand for the rest, and a
    quarter are any: what is believed of features is uncertain, and so are the means.
    """
    k, more = posterior.kernel.slate_size, _looks_at_more(posterior)
    count = NEW_PER_PLACE * k if more else k
    if posterior.prior_mean is None and posterior.kernel.counted_content is None:
        return np.asarray(rng.choice(new, size=count, replace=False, shuffle=False))
    drawn = rng.permutation(new)
    order = np.argsort(-posterior.item_means(context, eligible[drawn]), kind="stable")
    if not more:
        return np.asarray(drawn[order[:k]])
    best, rest = order[: count * 3 // 4], np.sort(order[count * 3 // 4 :])
    return np.asarray(drawn[np.concatenate([best, rest[: count - len(best)]])])


def _looks_at_more(posterior: Posterior) -> bool:
    """Return whether many items that were never shown are looked at: by features, or one by one where there are many.

    Of one that is drawn for the first time the draw is all that there is: among five few are ever tried.
    """
    return posterior.kernel.counted_content is not None or not posterior.kernel.centred


FEW_ITEMS = 50
"""Up to so many items the width is the paper's."""


def _beta(exploration: Exploration, state: State, eligible: NDArray[np.int32], shown_counts: NDArray[np.intp]) -> float:
    """Return beta, which the schedule makes smaller where there are many items.

    The paper's grows with the number of slates. But most slates of many items stay little known for ever, and a wide
    bound goes on through them: among m times as many items as are few beta is smaller by the root of m.
    """
    if isinstance(exploration.beta, ConstantBeta):
        return exploration.beta.value
    log_n_slates = log_count(len(eligible), state.posterior.kernel.slate_size)
    beta = paper_beta(exploration.beta.scale, log_n_arms=log_n_slates, round_number=state.remembered + 1)
    return beta * math.sqrt(min(FEW_ITEMS / _count_items(shown_counts, eligible), 1.0))


def _count_items(shown_counts: NDArray[np.intp], eligible: NDArray[np.int32]) -> int:
    """Return how many items there are: those that some row shows, and the eligible ones."""
    known = shown_counts > 0
    known[eligible] = True
    return int(np.count_nonzero(known))
