"""Rewards that change after they were learned: the state of the same happenings with others, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.replacing import replace
from topk_bandit.learning.item_outcomes import OutcomeRows, extend_contexts
from topk_bandit.learning.policy import halvings
from topk_bandit.learning.recent_observations import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topk_bandit.learning.policy import State

__all__ = ["can_correct", "correct", "hear", "revise"]


def can_correct(state: State, slate_id: str) -> bool:
    """Return whether a slate's reward can still be `correct`ed: it is a row of its own, or is not learned."""
    return slate_id in state.recent.ids


def correct(
    before: State, slate_id: str, reward: float | None, *, outcomes: NDArray[np.float64] | None = None
) -> State:
    """Return the state in which the reward of a slate was another, or none.

    It is that of the same happenings with the other reward, or with the slate `State.closed` where it was corrected, to
    rounding, but for which other rewards were judged to be wild since the last refit: the next one judges anew. Of
    slates shown since the reward, as many count as pending as did, and surprises stay what they were.

    Parameters
    ----------
    slate_id
        The slate's, of which `can_correct` is true.
    reward
        None for a slate that ended without one.
    outcomes
        As of `State.rewarded`.
    """
    index = before.recent.ids.index(slate_id)
    amended = replace(before, recent=before.recent.with_outcomes(index, outcomes))
    state = _void(amended, index) if reward is None else _amend(amended, index, reward)
    latest, feedback = len(state.recent) - state.since_refit, state.feedback
    if state.recent.outcomes is not None:
        feedback = state.feedback_so_far.hear_again(state.recent, count=state.since_refit)
    reward_range = state.range_at_refit.after_all(state.recent.rewards, first=latest)
    return replace(state, reward_range=reward_range, feedback=feedback)


def revise(
    state: State,
    slate_id: str,
    context: NDArray[np.float64],
    ranking: NDArray[np.int32],
    *,
    before: float,
    reward: float | None,
    at: float,
    before_outcomes: NDArray[np.float64] | None = None,
    outcomes: NDArray[np.float64] | None = None,
) -> State | None:
    """Return the state in which a slate that was learned before the last refit had another reward, or none.

    It is that of the same happenings with the other reward where the slate is a row or a sum of rows still, but for
    what was chosen and judged by the reward that it had. Where its row was projected onto others it is as exact as
    that (`folded_rewards`). One that fades counts as it does now, but for changes of the shop that were noticed.
    A slate whose other reward is wild is not learned, until later rewards show that it is in range.

    Parameters
    ----------
    slate_id, context, ranking
        Of the slate, as it was learned.
    before
        The reward that was learned last.
    reward
        None for a slate that is to count for nothing.
    at
        When the slate's reward was learned first.
    before_outcomes, outcomes
        As of `State.rewarded`: those that were learned last, and the others.

    Returns
    -------
    State | None
        None where the slate, or its other reward, is wild, and it is not among the latest observations. Then the
        reward can still be passed to `hear`.
    """
    outcomes = None if reward is None else outcomes
    index = state.recent.find_settled(slate_id)
    seen = state if reward is None else hear(state, reward)
    is_wild = reward is not None and seen.reward_in_range(reward) != reward
    is_unknown = index is None and (is_wild or at <= state.begun_at or seen.reward_in_range(before) != before)
    if is_unknown or state.is_wild_context(context):
        return None
    learned, latest = (state.encode(context), ranking, before), state.latest_rows
    weight = 0.5 ** halvings(state.aged_at - at, state.half_life)
    if reward is None or is_wild:
        posterior = state.posterior.remove(*learned, weight=weight, n_latest=latest)
    else:
        posterior = state.posterior.amend(*learned, change=reward - before, weight=weight, n_latest=latest)
    recounted = _recount(seen, slate_id, index, before=before, reward=reward, is_wild=is_wild)
    posterior = posterior.with_outcomes(*learned[:2], before_outcomes, None if is_wild else outcomes)
    revised = replace(recounted, posterior=state.scale(posterior))
    if before_outcomes is None and outcomes is None:
        return revised
    if index is not None and reward is not None:
        revised = replace(revised, recent=revised.recent.with_outcomes(index, outcomes))
    taken = None if _has_outcomes_of(state, index) or at <= state.begun_at else before_outcomes
    added = None if index is not None or reward is None else outcomes
    ends = (before, taken), (reward or 0.0, added)
    return _revise_outcomes(_hear_late(revised, outcomes), context, ranking, ends, weight)


def _has_outcomes_of(state: State, index: int | None) -> bool:
    """Return whether the outcomes of a slate are those of a latest observation: if not, they are in sums."""
    outcomes = state.recent.outcomes
    return index is not None and outcomes is not None and bool(np.isfinite(outcomes[index]).any())


def _hear_late(state: State, outcomes: NDArray[np.float64] | None) -> State:
    """Return the state that knows of outcomes of an earlier slate, as far as outcomes are judged by them."""
    if outcomes is None:
        return state
    return replace(state, feedback=state.feedback_so_far.hear_late(outcomes, state.recent.outcome_centre))


def _revise_outcomes(
    state: State,
    context: NDArray[np.float64],
    ranking: NDArray[np.int32],
    learned: Sequence[tuple[float, NDArray[np.float64] | None]],
    weight: float,
) -> State:
    """Return the state whose sums have another reward and outcomes of a slate: those before, and those after."""
    feedback, kernel = state.feedback, state.posterior.kernel
    for sign, (reward, one) in zip((-1.0, 1.0), learned, strict=True):
        if one is not None and feedback is not None:
            extended = extend_contexts(context[None], context_dim=feedback.context_dim)
            judged = feedback.judge(one[None], state.recent.outcome_centre)
            rows = OutcomeRows(extended, ranking[None], judged, np.array([sign * weight]), np.array([reward]))
            feedback = feedback.absorb(rows, most_items=state.most_items_of(kernel))
    return replace(state, feedback=feedback)


def hear(state: State, reward: float) -> State:
    """Return the state that knows of one more reward of an earlier slate, as far as rewards are judged by it."""
    reward_range, centre = state.reward_range.after(reward, state.recent.centre), state.recent.centre
    is_first = state.range_at_refit is state.reward_range
    at_refit = reward_range if is_first else state.range_at_refit.after(reward, centre)
    return replace(state, reward_range=reward_range, range_at_refit=at_refit)


def _recount(
    state: State, slate_id: str, index: int | None, *, before: float, reward: float | None, is_wild: bool
) -> State:
    """Return the state that remembers a slate's other reward, or none; what is learned stays."""
    gone, settled, recent = reward is None, state.settled, state.recent
    if index is None:
        settled = settled._replace(reward_sum=settled.reward_sum + (reward or 0.0) - before)
    elif reward is None:
        recent = recent.without(index)
    else:
        recent = recent.with_reward(index, reward)
        recent = recent.doubt(index, slate_id) if is_wild else recent
    return replace(
        state,
        observations=state.observations - gone,
        unrewarded=state.unrewarded + gone,
        settled=settled,
        recent=recent,
    )


def _void(state: State, index: int) -> State:
    posterior, is_latest = state.posterior, _is_latest(state, index)
    if state.recent.believed[index]:
        posterior = state.scale(posterior.without_row(_row_of(state, index)))
    return replace(
        state,
        posterior=posterior,
        observations=state.observations - 1,
        since_refit=state.since_refit - is_latest,
        unrewarded=state.unrewarded + 1,
        recent=state.recent.without(index),
    )


def _amend(state: State, index: int, reward: float) -> State:
    posterior, was_believed, is_latest = state.posterior, state.recent.believed[index], _is_latest(state, index)
    recent = state.recent.with_reward(index, reward)
    verdict = recent.judge(state.judge_of(state.reward_range), state.norm_range, n_new=len(recent) - index)[index]
    if verdict != Verdict.BELIEVED:
        posterior = posterior.without_row(_row_of(state, index)) if was_believed else posterior
        recent = recent.with_verdict(index, verdict)
    elif was_believed:
        latest = np.arange(len(recent)) >= len(recent) - state.since_refit
        posterior = posterior.with_rewards(recent.rewards[recent.believed & latest])
    else:
        # It is the newest row, so it has to be the newest observation.
        recent = recent.move_to_the_end(index)
        posterior = posterior.observe(state.encode(recent.contexts[-1]), recent.rankings[-1], reward)
    since_refit = state.since_refit + (bool(verdict == Verdict.BELIEVED) and not is_latest)
    return replace(state, posterior=state.scale(posterior), recent=recent, since_refit=since_refit)


def _is_latest(state: State, index: int) -> bool:
    """Return whether an observation came since the last refit."""
    return index >= len(state.recent) - state.since_refit


def _row_of(state: State, index: int) -> int:
    """Return which of the posterior's rows is that of an observation that is learned, and came since the refit."""
    return state.posterior.n_rows - int(state.recent.believed[index:].sum())
