"""Which policies an experiment compares."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments.arguments import POLICY_NAMES
from topk_bandit.lab.experiments.policy_names import has_vowpal, read_policy
from topk_bandit.lab.experiments.vowpal import VowpalCcb, VowpalSlates
from topk_bandit.lab.simulation.additive_thompson import AdditiveThompson
from topk_bandit.lab.simulation.linear_thompson import LinearPrior, LinearThompson
from topk_bandit.lab.simulation.paper_gp import paper_policies
from topk_bandit.lab.simulation.policies import Policy, armwise, random_slates, service
from topk_bandit.lab.simulation.service_variants import ignore_pending, limit_rows, restart_every
from topk_bandit.lab.simulation.thompson import ThompsonSampling

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = [
    "OF_BATTERY",
    "PENDING_NOT_COUNTED",
    "of_battery",
    "of_the_paper",
    "of_the_service",
    "rivals",
    "the_nine",
    "with_drift",
    "with_late_rewards",
    "without_kernels",
]


def of_the_paper() -> tuple[Policy, ...]:
    """Return all policies of the paper's figures, the best kernel first."""
    return (*the_nine(), *without_kernels(), random_slates())


def the_nine() -> tuple[Policy, ...]:
    """Return GP-TopK as the paper runs it, three kernels with three beta each, the best kernel first."""
    return tuple(sorted(paper_policies(), key=lambda policy: ("WCK", "CK", "WK").index(policy.family)))


def without_kernels() -> tuple[Policy, ...]:
    """Return the paper's policies that learn, and take every slate for an arm of its own."""
    return armwise()


def of_the_service() -> Policy:
    """Return what serves, as it explores unless somebody asks for something else."""
    return service(DEFAULT_EXPLORATION)


def rivals() -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """Return the service's policy and what a shop would otherwise use, and notes on those that can't be run here."""
    with_vowpal = has_vowpal()
    others = (*(_vowpal_wabbits() if with_vowpal else ()), *_linear_thompsons(), _thompson(), random_slates())
    return (of_the_service(), *others), () if with_vowpal else (_WITHOUT_VOWPAL,)


OF_BATTERY = POLICY_NAMES
"""The policies of the battery; of linear Thompson sampling it has several."""


def of_battery(names: Collection[str]) -> tuple[tuple[Policy, ...], tuple[str, ...]]:
    """Return the policies of these names, and notes on those that can't be run here.

    Raises
    ------
    InvalidArgumentError
        Naming ``--policies``: there is no such policy, or none is left.
    """
    for name in names:
        if name not in OF_BATTERY:
            raise InvalidArgumentError("--policies", f"expected some of {', '.join(OF_BATTERY)}, got {name!r}")
    needs_vowpal = {"vw-ccb", "vw-slates"}.intersection(names)
    without = needs_vowpal if not has_vowpal() else set()
    chosen = [name for name in OF_BATTERY if name in names and name not in without]
    if not chosen:
        raise InvalidArgumentError("--policies", "none is left")
    policies = [_additive_thompsons() if name == "linear" else (read_policy(name),) for name in chosen]
    return tuple(chain.from_iterable(policies)), (_WITHOUT_VOWPAL,) if without else ()


def _additive_thompsons() -> Iterator[Policy]:
    """Return ridges and widths around those that are best somewhere."""
    for ridge, width in ((1.0, 0.1), (1.0, 0.3), (10.0, 0.1), (10.0, 0.3), (100.0, 0.3), (100.0, 1.0)):
        make = partial(AdditiveThompson, ridge=ridge, width=width)
        yield Policy(f"linear Thompson {ridge:g}/{width:g}", "linear Thompson", make)


def _vowpal_wabbits() -> Iterator[Policy]:
    """Return each way with the ways to explore that it knows; each learns from user x item features (-q ca)."""
    for exploration in ("epsilon 0.05", "epsilon 0.1", "squarecb"):
        options = f"--{exploration} --quadratic ca"
        yield Policy(f"VW CCB {exploration}", "VW CCB", partial(VowpalCcb.of, options=options))
        options = f"{options} --learning_rate 2"
        yield Policy(f"VW slates {exploration}", "VW slates", partial(VowpalSlates.of, options=options))


def _linear_thompsons() -> Iterator[Policy]:
    """Return priors around the one that is best in both sizes: what is best in one is bad in the other."""
    for variance in (0.003, 0.001, 0.0003):
        make = partial(LinearThompson.of, prior=LinearPrior(item=variance, pair=variance))
        yield Policy(f"linear Thompson {variance:g}", "linear Thompson", make)


_WITHOUT_VOWPAL = (
    "VW CCB and VW slates are left out: vowpalwabbit is not installed (pip install 'topk-bandit[rivals]')."
)


PENDING_NOT_COUNTED = "pending not counted"


def with_late_rewards() -> tuple[Policy, ...]:
    """Return policies that differ in what they make of rewards that are not there yet."""
    exploration = DEFAULT_EXPLORATION
    return (of_the_service(), ignore_pending(exploration), _thompson(), random_slates())


def with_drift() -> tuple[Policy, ...]:
    """Return policies that differ in what they forget."""
    exploration = DEFAULT_EXPLORATION
    return (
        of_the_service(),
        limit_rows(exploration, rows=_FEW_ROWS),
        restart_every(exploration, every=_ANEW),
        random_slates(),
    )


_FEW_ROWS, _ANEW = 64, 100


def _thompson() -> Policy:
    return Policy("Thompson sampling", "Thompson sampling", ThompsonSampling.of)
