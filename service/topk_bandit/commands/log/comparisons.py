"""Which of several challengers earns most, by a log: a table of estimates and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.commands.log.verdicts import describe_best, find_best
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.evaluation.estimators import doubly_robust, on_policy
from topk_bandit.learning.evaluation.reward_model import learn_rewards
from topk_bandit.learning.evaluation.targets import always

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topk_bandit.commands.log.policies import AskedPolicy
    from topk_bandit.commands.log.slates import LoggedSlates
    from topk_bandit.learning.evaluation.estimators import Estimate
    from topk_bandit.learning.evaluation.reward_model import RewardModel
    from topk_bandit.learning.evaluation.slate_log import OtherSlates, SlateLog

__all__ = ["Comparison", "compare_challengers", "row", "try_to_learn"]

_WIDTH = 20


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
        yield f"which does best, by doubly robust on {self.n_requests:,} requests"
        yield row("as shown", self.shown)
        for title, estimate in self.found:
            yield from (f"  {title}", row("", estimate))
        yield f"  {describe_best(self.shown, self.found)}"


def compare_challengers(
    logged: LoggedSlates, challengers: Sequence[AskedPolicy], of_all: RewardModel | InvalidArgumentError | None = None
) -> Comparison | str:
    """Return how challengers compare, or why they cannot be compared.

    Parameters
    ----------
    of_all
        The model of the rewards of all requests, or why there is none; it is learned where it is not given.
    """
    if not len(logged.log):
        return "all slates with a reward were drawn under rules"
    could = np.logical_and.reduce([one.could for one in challengers])
    if not could.any():
        return "no request could show the slates of all challengers"
    log = logged.log if could.all() else logged.log.part(could)
    if np.ptp(log.rewards) == 0.0:
        return f"all {len(log):,} rewards are equal"
    model = of_all
    if model is None or not could.all():
        model = try_to_learn(log, logged.otherwise if could.all() else None)
    if isinstance(model, InvalidArgumentError):
        return f"there is no model of rewards: {model.problem}"
    found = [(one.title, doubly_robust(log, always(log, one.slates[could[one.could]]), model)) for one in challengers]
    found.sort(key=lambda one: -one[1].value)
    return Comparison(len(log), on_policy(log), tuple(found))


def try_to_learn(log: SlateLog, otherwise: OtherSlates | None) -> RewardModel | InvalidArgumentError:
    """Return the model of rewards, or why there is none."""
    try:
        return learn_rewards(log, otherwise)
    except InvalidArgumentError as error:
        return error


def row(name: str, estimate: Estimate) -> str:
    """Return the line of an estimate."""
    if np.isnan(estimate.value):
        return f"  {name:{_WIDTH}}none: the log has no such slate"
    value, low, high = (f"{number:#.4g}".rstrip(".") for number in (estimate.value, estimate.low, estimate.high))
    return f"  {name:{_WIDTH}}{value:>10}   from {low:>10} to {high:>10}"
