"""What a log's slates earned, and what other policies would have earned on its requests, in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.estimators import balanced, doubly_robust, ips, on_policy, pseudo_inverse, snips
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.targets import always, uniform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topk_bandit.commands.log.slates import LoggedSlates
    from topk_bandit.learning.evaluation.estimators import Estimate
    from topk_bandit.learning.evaluation.reward_model import RewardModel
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.evaluation.targets import Target

__all__ = ["describe"]

_WIDTH = 20


def describe(logged: LoggedSlates, fixed: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of the table: what was shown, slates drawn uniformly, and slates of these ids, shown always.

    Raises
    ------
    InvalidArgumentError
        One of the slates has an item that the log does not, or the wrong number of items, or none of the requests could
        have shown it.
    """
    log, slates = logged.log, [_indices(logged, ids) for ids in fixed]
    yield from _counts(logged)
    yield from ("", "the slates that were shown", _row("mean reward", on_policy(log)))
    model = _try_to_learn(log)
    yield from ("", "slates drawn uniformly", *_rows(log, uniform(log), model))
    for ids, slate in zip(fixed, slates, strict=True):
        could = _could_show(log, slate)
        part = log if could.all() else log.part(could)
        missed = len(log) - len(part)
        yield from ("", f"always {','.join(ids)}" + (f", on the {len(part):,} requests that could" if missed else ""))
        if missed:
            yield _row("as shown there", on_policy(part))
        yield from _rows(part, always(part, np.tile(slate, (len(part), 1))), _try_to_learn(part) if missed else model)


def _indices(logged: LoggedSlates, ids: Sequence[str]) -> NDArray[np.int32]:
    size, indices = logged.log.policy.slate_size, {item_id: index for index, item_id in enumerate(logged.item_ids)}
    if unknown := [item_id for item_id in ids if item_id not in indices]:
        raise InvalidArgumentError("--slate", f"the log has no item {unknown[0]!r}")
    if not len(ids) == len(set(ids)) == size:
        raise InvalidArgumentError("--slate", f"expected {size} different items, got {','.join(ids)}")
    slate = np.array([indices[item_id] for item_id in ids], dtype=np.int32)
    if not _could_show(logged.log, slate).any():
        raise InvalidArgumentError("--slate", f"no request could have shown {','.join(ids)}")
    return slate


def _could_show(log: SlateLog, slate: NDArray[np.int32]) -> NDArray[np.bool_]:
    return np.asarray(log.policy.eligible[:, slate].all(axis=1))


def _counts(logged: LoggedSlates) -> Iterator[str]:
    left_out = logged.left_out
    total = len(logged.log) + sum(left_out)
    yield f"{total:,} recommendations, {len(logged.log):,} of them evaluated"
    yield f"{left_out.without_reward:,} without a reward are left out"
    if left_out.without_share:
        yield f"{left_out.without_share:,} drawn with a uniform share of 0 are left out"
    if left_out.shown_otherwise:
        yield f"{left_out.shown_otherwise:,} instead of which another slate was shown are left out"
    if left_out.baseline:
        yield f"{left_out.baseline:,} baseline slates are left out: too few candidates were left to choose from"
    if logged.imported:
        yield f"{logged.imported:,} imported rows are left out: what else could have been shown is not known"
    if left_out.before_snapshot:
        yield f"{left_out.before_snapshot:,} decided before the snapshot that the file begins with are left out"


def _try_to_learn(log: SlateLog) -> RewardModel | InvalidArgumentError:
    """Return the model of rewards, or why there is none."""
    try:
        return learn_rewards(log)
    except InvalidArgumentError as error:
        return error


def _rows(log: SlateLog, target: Target, model: RewardModel | InvalidArgumentError) -> Iterator[str]:
    yield _row("ips", ips(log, target))
    yield _row("snips", snips(log, target))
    yield _row("pseudo-inverse", pseudo_inverse(log, target))
    if isinstance(model, InvalidArgumentError):
        yield f"  doubly robust and balanced need a model of rewards: {model.problem}"
        return
    yield _row("doubly robust", doubly_robust(log, target, model))
    yield _row("balanced", balanced(log, target, model))


def _row(name: str, estimate: Estimate) -> str:
    if np.isnan(estimate.value):
        return f"  {name:{_WIDTH}}none: the log has no such slate"
    value, low, high = (f"{number:#.4g}".rstrip(".") for number in (estimate.value, estimate.low, estimate.high))
    return f"  {name:{_WIDTH}}{value:>10}   from {low:>10} to {high:>10}"
