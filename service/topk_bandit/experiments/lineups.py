"""Which policies an experiment compares."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from topk_bandit.experiments.vowpal import VowpalCcb, VowpalSlates
from topk_bandit.settings import Settings
from topk_bandit.simulation.linear_thompson import LinearThompson
from topk_bandit.simulation.paper_gp import paper_policies
from topk_bandit.simulation.policies import Policy, armwise, random_slates, service
from topk_bandit.simulation.service_variants import begun_anew, bounded, pending_not_counted
from topk_bandit.simulation.thompson import ThompsonSampling

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from topk_bandit.simulation.episodes import Player
    from topk_bandit.simulation.policies import Known

__all__ = [
    "PENDING_NOT_COUNTED",
    "of_the_paper",
    "of_the_service",
    "rivals",
    "the_nine",
    "with_drift",
    "with_late_rewards",
]


def of_the_paper() -> tuple[Policy, ...]:
    """Return all policies of the paper's figures, the best kernel first."""
    return (*the_nine(), *armwise(), random_slates())


def the_nine() -> tuple[Policy, ...]:
    """Return GP-TopK as the paper runs it, three kernels with three beta each, the best kernel first."""
    return tuple(sorted(paper_policies(), key=lambda policy: ("WCK", "CK", "WK").index(policy.family)))


def of_the_service() -> Policy:
    """Return what serves, as it explores unless somebody asks for something else."""
    return service(Settings().default_exploration)


def rivals() -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """Return the service's policy and what a shop would otherwise use, and notes on those that can't be run here."""
    ours, others = of_the_service(), [_named("VW CCB", VowpalCcb.of), _named("VW slates", VowpalSlates.of)]
    notes: tuple[str, ...] = ()
    if find_spec("vowpalwabbit") is None:
        others, notes = [], (_WITHOUT_VOWPAL,)
    return (ours, *others, _named("linear Thompson", LinearThompson.of), _thompson(), random_slates()), notes


_WITHOUT_VOWPAL = (
    "VW CCB and VW slates are left out: vowpalwabbit is not installed (pip install 'topk-bandit[rivals]')."
)


PENDING_NOT_COUNTED = "pending not counted"


def with_late_rewards() -> tuple[Policy, ...]:
    """Return policies that differ in what they make of rewards that are not there yet."""
    exploration = Settings().default_exploration
    return (of_the_service(), pending_not_counted(exploration), _thompson(), random_slates())


def with_drift() -> tuple[Policy, ...]:
    """Return policies that differ in what they forget."""
    exploration = Settings().default_exploration
    return (
        of_the_service(),
        bounded(exploration, rows=_FEW_ROWS),
        begun_anew(exploration, every=_ANEW),
        random_slates(),
    )


_FEW_ROWS, _ANEW = 64, 100


def _thompson() -> Policy:
    return _named("Thompson sampling", ThompsonSampling.of)


def _named(name: str, make: Callable[[Known, np.random.Generator], Player]) -> Policy:
    return Policy(name, name, make)
