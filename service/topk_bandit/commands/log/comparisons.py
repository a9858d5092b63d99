"""Which of several challengers earns most, by a log: a table of estimates and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.commands.log.challengers import title_of
from topk_bandit.commands.log.verdicts import agree_with, describe_best, find_best
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.estimators import (
    doubly_robust,
    doubly_robust_under_rules,
    ips,
    on_policy,
    pool,
    snips,
)
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.slate_log import SlateLog
from topk_bandit.learning.evaluation.targets import always

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from topk_bandit.commands.log.challengers import Challenger
    from topk_bandit.commands.log.policies import AskedPolicy
    from topk_bandit.commands.log.slates import LoggedSlates
    from topk_bandit.learning.evaluation.estimators import Estimate
    from topk_bandit.learning.evaluation.reward_model import RewardModel
    from topk_bandit.learning.evaluation.ruled_log import RuledLog
    from topk_bandit.learning.evaluation.slate_log import OtherSlates, ShownSlates
    from topk_bandit.learning.evaluation.targets import Target

    _Learned: TypeAlias = RewardModel | InvalidArgumentError

__all__ = ["Comparison", "compare_challengers", "row", "try_to_learn"]

_WIDTH = 20


class _Part(NamedTuple):
    """The requests with rules, or those without, that all challengers could answer.

    Attributes
    ----------
    log
        The requests.
    slates
        What each challenger shows to them, shape (N, k).
    model
        Of the rewards, or why there is none.
    """

    log: SlateLog | RuledLog
    slates: list[NDArray[np.int32]]
    model: _Learned

    @classmethod
    def of(
        cls,
        log: SlateLog | RuledLog,
        policies: Sequence[AskedPolicy],
        of_all: _Learned | None,
        otherwise: OtherSlates | None,
    ) -> _Part:
        """Return the part of a log; where it is all of it, the model may be known."""
        could = np.logical_and.reduce([one.could for one in policies])
        kept, model = log if could.all() else log.part(could), of_all
        if model is None or not could.all():
            model = try_to_learn(kept, otherwise if could.all() else None)
        return cls(kept, [one.slates[could[one.could]] for one in policies], model)

    def estimates(self, model: RewardModel) -> list[Estimate]:
        """Return what each challenger would have earned."""
        log = self.log
        if isinstance(log, SlateLog):
            return [_estimate(log, always(log, one), model) for one in self.slates]
        targets = [log.always(log.complete(one)) for one in self.slates]
        return [doubly_robust_under_rules(log, one, model) for one in targets]


def _estimate(log: SlateLog, target: Target, model: RewardModel) -> Estimate:
    """Return what a policy would have earned by doubly robust, or by what assumes nothing where that is apart."""
    found, free = doubly_robust(log, target, model), (ips(log, target), snips(log, target))
    return found if agree_with(found, free) else min(free, key=lambda one: one.high - one.low)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was shown and what challengers would have earned, on the requests that all of them could answer.

    Attributes
    ----------
    n_requests
        How many there are.
    shown
        The mean reward of the slates that were shown.
    found
        The title of each challenger and its mean reward, the best one first.
    """

    n_requests: int
    shown: Estimate
    found: tuple[tuple[str, Estimate], ...]

    def with_error(self, error: float) -> Comparison:
        """Return the same with intervals of which each misses with this chance."""
        found = tuple((title, estimate.with_error(error)) for title, estimate in self.found)
        return Comparison(self.n_requests, self.shown.with_error(error), found)

    @property
    def best(self) -> str | None:
        """The title of the challenger that earns most; None where the log can't tell, or what was shown does."""
        return find_best(self.shown, self.found)

    @property
    def is_decided(self) -> bool:
        """Whether a challenger earns most, or what was shown does."""
        return self.best is not None or self.found[0][1].is_below(self.shown)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a table, and the sentence below it."""
        yield f"which does best, by doubly robust where ips and snips agree, on {self.n_requests:,} requests"
        yield row("as shown", self.shown)
        for title, estimate in self.found:
            yield from (f"  {title}", row("", estimate))
        yield f"  {describe_best(self.shown, self.found)}"


def compare_challengers(
    logged: LoggedSlates, played: Sequence[Challenger], models: Sequence[_Learned | None] = (None, None)
) -> Comparison | str:
    """Return how challengers compare, or why they cannot be compared.

    Parameters
    ----------
    models
        The models of rewards without rules and under rules, or why there is none; one that is not given is learned.
    """
    parts = [_Part.of(logged.log, [one.policy(logged.asked) for one in played], models[0], logged.otherwise)]
    if logged.ruled is not None:
        policies = [one.policy(logged.ruled.asked) for one in played]
        parts.append(_Part.of(logged.ruled.log, policies, models[1], None))
    parts = [one for one in parts if len(one.log)]
    if not parts:
        return "no request could show the slates of all challengers"
    rewards = np.concatenate([one.log.rewards for one in parts])
    if np.ptp(rewards) == 0.0:
        return f"all {len(rewards):,} rewards are equal"
    compared = {one.log: one.estimates(one.model) for one in parts if not isinstance(one.model, InvalidArgumentError)}
    if not compared:
        problem = next(one.model.problem for one in parts if isinstance(one.model, InvalidArgumentError))
        return f"there is no model of rewards: {problem}"
    counts = [*map(len, compared)]
    of_each = zip(*compared.values(), strict=True)
    found = [(title_of(one.flags), pool(several, counts)) for one, several in zip(played, of_each, strict=True)]
    found.sort(key=lambda one: -one[1].value)
    return Comparison(sum(counts), on_policy(*compared), tuple(found))


def try_to_learn(log: ShownSlates, otherwise: OtherSlates | None) -> RewardModel | InvalidArgumentError:
    """Return the model of rewards, or why there is none."""
    try:
        return learn_rewards(log, otherwise)
    except InvalidArgumentError as error:
        return error


def row(name: str, estimate: Estimate) -> str:
    """Return the line of an estimate."""
    if np.isnan(estimate.value):
        return f"  {name:{_WIDTH}}none: the log has too few such slates"
    value, low, high = (f"{number:#.4g}".rstrip(".") for number in (estimate.value, estimate.low, estimate.high))
    return f"  {name:{_WIDTH}}{value:>10}   from {low:>10} to {high:>10}"
