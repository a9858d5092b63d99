"""What a log's slates earned, and what other policies would have earned on its requests, in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.commands.log.comparisons import Comparison, compare_challengers, row, try_to_learn
from topk_bandit.commands.log.verdicts import choose_estimate, verdict, verdict_of
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.estimators import (
    average_weighted,
    balanced,
    cascade,
    doubly_robust,
    doubly_robust_under_rules,
    ips,
    normalise_weighted,
    on_policy,
    pseudo_inverse,
    snips,
)
from topk_bandit.learning.evaluation.targets import always, uniform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from topk_bandit.commands.log.challengers import Challenger
    from topk_bandit.commands.log.policies import AskedPolicy
    from topk_bandit.commands.log.slates import LoggedSlates
    from topk_bandit.learning.evaluation.reward_model import RewardModel
    from topk_bandit.learning.evaluation.ruled_log import RuledLog, RuledTarget
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.evaluation.targets import Target

__all__ = ["describe", "describe_requests"]


def describe(
    logged: LoggedSlates,
    asked: Sequence[AskedPolicy],
    asked_under_rules: Sequence[AskedPolicy] = (),
    challengers: Sequence[Challenger] = (),
) -> Iterator[str]:
    """Yield the lines of the tables: what was shown, slates drawn uniformly, and the policies that were asked about.

    Requests whose slates were drawn among those that rules allow have tables of their own. The last table compares
    `challengers`, which are among the policies asked about, too.
    """
    yield from describe_requests(logged)
    free = try_to_learn(logged.log, logged.otherwise) if len(logged.log) else None
    ruled = None if logged.ruled is None else try_to_learn(logged.ruled.log, None)
    if logged.ruled is not None and free is not None:
        yield from ("", "all slates that were shown", row("mean reward", on_policy(logged.log, logged.ruled.log)))
    if free is not None:
        yield from _tables(logged, asked, free)
    if logged.ruled is not None and ruled is not None:
        yield from _tables_under_rules(logged.ruled.log, asked_under_rules, ruled)
    compared = compare_challengers(logged, challengers, (free, ruled)) if challengers else None
    if isinstance(compared, Comparison):
        yield from ("", *compared.lines())


def describe_requests(logged: LoggedSlates) -> Iterator[str]:
    """Yield the lines that count the requests, those that are left out, and what is wrong with the log."""
    yield from _counts(logged)
    yield from (f"warning: {flaw}" for flaw in logged.flaws)


def _tables(
    logged: LoggedSlates, asked: Sequence[AskedPolicy], model: RewardModel | InvalidArgumentError
) -> Iterator[str]:
    log, outcomes = logged.log, logged.outcomes
    beside = "" if logged.ruled is None else "without rules: "
    count = f"{len(log):,} requests, " if beside else ""
    yield from ("", f"{beside}{count}the slates that were shown", row("mean reward", on_policy(log)))
    yield from ("", f"{beside}slates drawn uniformly", *_rows(log, uniform(log), model, outcomes))
    for policy in (one for one in asked if one.could.any()):
        part = log if policy.could.all() else log.part(policy.could)
        of_part = None if outcomes is None else outcomes[policy.could]
        missed = len(log) - len(part)
        yield from ("", beside + policy.title + (f", on the {len(part):,} requests that could" if missed else ""))
        if missed:
            yield row("as shown there", on_policy(part))
        yield from _rows(part, always(part, policy.slates), try_to_learn(part, None) if missed else model, of_part)


def _tables_under_rules(
    log: RuledLog, asked: Sequence[AskedPolicy], model: RewardModel | InvalidArgumentError
) -> Iterator[str]:
    yield from ("", f"under rules: {len(log):,} requests, the slates that were shown", row("as shown", on_policy(log)))
    yield from ("", "under rules: slates drawn uniformly of those that rules allow")
    yield from _rows_under_rules(log, log.uniform(), model)
    for policy in (one for one in asked if one.could.any()):
        part = log if policy.could.all() else log.part(policy.could)
        slates = part.complete(policy.slates)
        changed = int((slates != policy.slates).any(axis=1).sum())
        on_which = f", on the {len(part):,} requests that could" if len(part) < len(log) else ""
        yield from ("", f"under rules: {policy.title}{on_which}; rules change {changed:,} of its slates")
        if on_which:
            yield row("as shown there", on_policy(part))
        of_part = model if len(part) == len(log) else try_to_learn(part, None)
        yield from _rows_under_rules(part, part.always(slates), of_part)


def _rows_under_rules(log: RuledLog, target: RuledTarget, model: RewardModel | InvalidArgumentError) -> Iterator[str]:
    estimates = {
        "ips": average_weighted(target.weights, log.rewards),
        "snips": normalise_weighted(target.weights, log.rewards),
    }
    if not isinstance(model, InvalidArgumentError):
        estimates["doubly robust"] = doubly_robust_under_rules(log, target, model)
    for name, estimate in estimates.items():
        yield row(name, estimate)
    if isinstance(model, InvalidArgumentError):
        yield f"  doubly robust needs a model of rewards: {model.problem}"
    narrowest = min(estimates, key=lambda name: estimates[name].high - estimates[name].low)
    yield f"  by {narrowest}: {verdict_of(on_policy(log), estimates[narrowest])}"


def _counts(logged: LoggedSlates) -> Iterator[str]:
    left_out = logged.left_out
    n_evaluated = len(logged.log) + (0 if logged.ruled is None else len(logged.ruled.log))
    yield f"{n_evaluated + sum(left_out):,} recommendations, {n_evaluated:,} of them evaluated"
    yield f"{left_out.without_reward:,} without a reward are left out"
    if left_out.without_share:
        yield f"{left_out.without_share:,} drawn with a uniform share of 0 are left out"
    if left_out.shown_otherwise:
        yield f"{left_out.shown_otherwise:,} instead of which another slate was shown are left out"
        if logged.otherwise is not None:
            earned = logged.otherwise.rewards
            mean = f"{earned.mean():.4g}"
            yield f"{len(earned):,} of them have a reward, {mean} on average: the model of rewards learns from these"
    if left_out.baseline:
        why = "the stage, the group or a lack of candidates asked for them"
        yield f"{left_out.baseline:,} baseline slates are left out: {why}"
    if left_out.about_new:
        why = "which items were new is not in the log"
        yield f"{left_out.about_new:,} slates under rules about new items are left out: {why}"
    if left_out.paid:
        why = "they show what was owed, and a policy owes nothing"
        yield f"{left_out.paid:,} slates that paid for promised exposures are left out: {why}"
    if logged.imported:
        yield f"{logged.imported:,} imported rows are left out: what else could have been shown is not known"
    if left_out.before_change:
        yield f"{left_out.before_change:,} chosen before the policy changed are left out: they are of another one"
    if left_out.before_snapshot:
        yield f"{left_out.before_snapshot:,} decided before the snapshot that the file begins with are left out"


def _rows(
    log: SlateLog,
    target: Target,
    model: RewardModel | InvalidArgumentError,
    outcomes: NDArray[np.float64] | None,
) -> Iterator[str]:
    estimates = {"ips": ips(log, target), "snips": snips(log, target)}
    if outcomes is not None:
        estimates["cascade"] = cascade(log, target, outcomes)
    estimates["pseudo-inverse"] = pseudo_inverse(log, target)
    learned = None if isinstance(model, InvalidArgumentError) else model
    if learned is not None:
        estimates |= {"doubly robust": doubly_robust(log, target, learned), "balanced": balanced(log, target, learned)}
    for name, estimate in estimates.items():
        yield row(name, estimate)
    if isinstance(model, InvalidArgumentError):
        yield f"  doubly robust and balanced need a model of rewards: {model.problem}"
    name, grounds = choose_estimate(estimates)
    yield f"  {grounds}: {verdict(log, target, on_policy(log), estimates[name], learned)}"
