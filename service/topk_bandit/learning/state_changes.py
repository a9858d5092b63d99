"""What a bandit's operators change: its items and their features, its contexts, its prior mean, or all it learned."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.replacing import replace
from topk_bandit.learning.item_feedback import extend_images
from topk_bandit.learning.policy import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.prior_mean import PriorMean

__all__ = [
    "change_contexts",
    "change_item_features",
    "change_kernel",
    "change_prior_mean",
    "change_prior_of_new_items",
    "forget",
    "vacate",
]


def forget(state: State, kernel: KendallKernel, at: float = 0.0) -> State:
    """Return the state, refit, of a bandit that begins anew: what was learned of rewards is gone.

    Slates that were shown are no longer pending; their rewards can be learned all the same. Counts go on, and so
    does what a study said of the items.

    Parameters
    ----------
    kernel
        As for `State.initial`, with the features of the items, if they have any.
    at
        As for `State.refit`.
    """
    prior_mean = state.study_mean
    anew = State.initial(
        kernel,
        context_dim=state.posterior.context_dim - bool(state.shared),
        limits=state.limits,
        prior_mean=None if prior_mean is None else prior_mean.with_kernel(kernel),
        half_life=state.half_life,
        encoded=state.norm_range is None,
        trusts_rewards=state.trusts_rewards,
    )
    return replace(
        anew,
        settled=state.counted,
        observations=state.observations,
        forgotten=state.observations,
        imported=state.imported,
        unrewarded=state.unrewarded,
        changes=state.changes,
        begun_at=at,
        leaving=state.leaving,
    ).refit(at)


def change_kernel(state: State, kernel: KendallKernel, at: float = 0.0) -> State:
    """Return the state, refit, whose kernel is of the same family for more items; its rows are taken for theirs.

    Parameters
    ----------
    kernel
        Of the same slates; the shape of an adaptive one stays what it is, and so do the features of its items.
    at
        As for `State.refit`.
    """
    posterior, prior_mean, shape = state.posterior, state.posterior.prior_mean, state.posterior.kernel.shape
    kernel = kernel if shape is None else kernel.with_shape(shape)
    kernel = kernel if posterior.kernel.centred else kernel.uncentre()
    if (content := posterior.kernel.content) is not None:
        # Places without an item have no features.
        more = kernel.n_items - len(content.features)
        kernel = kernel.with_item_features(np.pad(content.features, ((0, more), (0, 0))))
    rows = state.observed_rows
    if prior_mean is not None:
        rows = rows.with_prior_mean(prior_mean.with_kernel(kernel))
    posterior = posterior.refit(rows, noise_variance=posterior.noise_variance, kernel=kernel)
    feedback = None if state.feedback is None else state.feedback.with_kernel(kernel)
    return replace(state, posterior=posterior, feedback=feedback).refit(at)


def vacate(before: State, items: NDArray[np.int32], at: float = 0.0) -> State:
    """Return the state, refit if any row shows one of these items, and none shows one then.

    Information on other items from rewarded rows is kept as far as other rows hold it; pending ones stop counting.

    Parameters
    ----------
    items
        Items that are never shown again, whose slots others take.
    at
        As for `State.refit`.
    """
    posterior, state = before.posterior, before
    parts = posterior.observed_rows.parts
    known_items = np.zeros(0, dtype=np.int32) if parts is None else parts.items
    if state.feedback is not None:
        known_items = np.union1d(known_items, np.append(state.feedback.settled.items, state.recent.rankings))
        state = replace(state, feedback=state.feedback.without(items), recent=state.recent.mask_outcomes(items))
    if not np.isin(posterior.all_rows.rankings, items).any() and not np.isin(known_items, items).any():
        return before
    shown = np.flatnonzero(np.isin(posterior.pending.rankings, items).any(axis=1))
    for slate_id in [before.pending_ids[row] for row in shown.tolist()]:
        state = state.discard(slate_id)
    refit = state.refit(at, vacated=items)
    gone = np.asarray(np.isin(refit.recent.rankings, items).any(axis=1))
    leave = refit.recent.select(gone)
    feedback = refit.feedback
    if feedback is not None:
        feedback = refit.absorb_outcomes(feedback, leave, refit.posterior.kernel, refit.aged_at)
    settled = refit.settled.plus(leave)
    return replace(refit, recent=refit.recent.select(~gone), settled=settled, feedback=feedback)


def change_contexts(
    before: State, change: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
) -> State:
    """Return the state, refit, whose rows have other contexts.

    Parameters
    ----------
    change
        From contexts as the posterior has them, shape (N, C + 1), what they share being the last number, to others
        in their order, perhaps with more numbers; or from (N, C), if they share nothing. It is also given how many
        times as long as a context each can be, shape (N,). Values out of range may be shortened; all others are
        changed linearly.
    """
    posterior = before.posterior
    rows, pending = before.observed_rows, posterior.pending
    changed = change(rows.contexts, rows.sizes), change(pending.contexts, np.ones(len(pending.contexts)))
    if all(np.array_equal(new, old) for new, old in zip(changed, (rows.contexts, pending.contexts), strict=True)):
        return before
    context_dim = changed[0].shape[1]
    if posterior.prior_mean is not None:
        posterior = replace(posterior, prior_mean=posterior.prior_mean.with_context_dim(context_dim))
    state = replace(before, posterior=posterior)
    parts, feedback = rows.parts, before.feedback
    if parts is not None or feedback is not None:
        every = np.eye(before.posterior.context_dim)
        images = change(every, np.full(len(every), math.inf))
        parts = None if parts is None else parts.with_contexts(images)
        if feedback is not None:
            extended = extend_images(images, before.shared)
            state = replace(state, feedback=feedback.with_contexts(extended, context_dim=context_dim))
    rows, pending = replace(rows, contexts=changed[0], parts=parts), pending._replace(contexts=changed[1])
    if len(before.recent):
        latest = change(before.with_shared(before.recent.contexts), np.ones(len(before.recent)))
        latest = latest[:, : latest.shape[1] - bool(before.shared)]
        state = replace(state, recent=before.recent.with_contexts(latest))
    return state.rebuild(posterior.kernel, rows, pending, before.aged_at)


def change_prior_mean(state: State, prior_mean: PriorMean | None) -> State:
    """Return the state, refit, with another prior mean, or none: what was learned from rewards is kept."""
    if prior_mean is not None:
        prior_mean = prior_mean.with_context_dim(state.posterior.context_dim)
    if state.feedback is not None:
        return replace(state, feedback=replace(state.feedback, study=prior_mean)).refit(state.aged_at)
    posterior = state.posterior.with_prior_mean(prior_mean, noise_variance=state.posterior.noise_variance)
    return replace(state, posterior=posterior).refit(state.aged_at)


def change_prior_of_new_items(state: State, prior_mean: PriorMean) -> State:
    """Return the state with a prior mean that differs for items that were never shown: no row changes.

    Where outcomes say more than it, the state is refit.
    """
    if state.feedback is not None:
        return replace(state, feedback=replace(state.feedback, study=prior_mean)).refit(state.aged_at)
    return replace(state, posterior=state.posterior.with_new_items(prior_mean))


def change_item_features(before: State, features: NDArray[np.float64] | None) -> State:
    """Return the state with these features of the items, or none.

    Where the items of all rows have the features that they had, nothing else changes. Else it is refit, and when
    items get features for the first time, or others in number, how much they count is chosen at once.

    Parameters
    ----------
    features
        As for `KendallKernel.with_item_features`.
    """
    posterior, old = before.posterior, before.posterior.kernel.content
    kernel = posterior.kernel.with_item_features(features)
    if kernel.content is None and old is None:
        return before
    if kernel.content is not None and old is not None and old.features.shape == kernel.content.features.shape:
        shown = np.flatnonzero(posterior.shown_counts())
        if np.array_equal(old.features[shown], kernel.content.features[shown]):
            return replace(before, posterior=posterior.with_unshown_features(kernel))
        return before.rebuild(kernel, before.observed_rows, posterior.pending, before.aged_at)
    state = replace(before, compared=0)
    return state.rebuild(kernel, before.observed_rows, posterior.pending, before.aged_at)
