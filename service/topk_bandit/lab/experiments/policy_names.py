"""Policies as people write them: a name, and settings that are not the usual ones, `service:near-share=0,rows=64`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.bandits import DEFAULT_BETA_SCALE, DEFAULT_EXPLORATION, PaperBeta
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.experiments.vowpal import VowpalCcb, VowpalSlates
from topk_bandit.lab.simulation.additive_thompson import AdditiveThompson, ItemThompson
from topk_bandit.lab.simulation.policies import SERVICE, Policy, random_slates, shipped_service
from topk_bandit.lab.simulation.popularity import Popularity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["has_vowpal", "read_policy"]

_FIELD = "POLICY"


class _Named(NamedTuple):
    """What tables call a policy, its settings with their usual values, and what makes it of others."""

    usual_name: str
    settings: Mapping[str, float]
    make: Callable[[str, Mapping[str, float]], Policy]


def read_policy(text: str) -> Policy:
    """Return the policy of a text, which is the policy's name, too.

    Raises
    ------
    InvalidArgumentError
        Naming ``POLICY``: there is no such policy or setting, or it can't have this value or be run here.
    """
    name, _, listed = text.partition(":")
    if name not in _NAMED:
        raise InvalidArgumentError(_FIELD, f"expected one of {', '.join(_NAMED)}, got {name!r}")
    named = _NAMED[name]
    settings = dict(named.settings)
    for part in listed.split(",") if listed else ():
        key, _, value = part.partition("=")
        if key not in settings:
            known = f"one of {', '.join(settings)}" if settings else "none"
            raise InvalidArgumentError(_FIELD, f"{name} has no setting {key!r}: expected {known}")
        settings[key] = _number(key, value)
    return named.make(text if listed else named.usual_name, settings)


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < 0.0:
        raise InvalidArgumentError(_FIELD, f"expected a number that is not negative for {key}, got {value!r}")
    return number


def _service(text: str, settings: Mapping[str, float]) -> Policy:
    exploration = replace(
        DEFAULT_EXPLORATION,
        beta=PaperBeta(settings["beta-scale"]),
        uniform_share=settings["uniform-share"],
        near_share=settings["near-share"],
        shares_fall_after=int(settings["shares-fall-after"]),
    )
    rows = int(settings["rows"]) if math.isfinite(settings["rows"]) else None
    return shipped_service(
        text,
        exploration=exploration,
        rows=rows,
        half_life=settings["half-life"],
        item_values=bool(settings["item-values"]),
    )


def _linear(text: str, settings: Mapping[str, float]) -> Policy:
    kind = ItemThompson if settings["item-values"] else AdditiveThompson
    make = partial(kind, ridge=settings["ridge"], width=settings["width"])
    return Policy(text, "linear Thompson", make)


def _without_settings(policy: Policy) -> _Named:
    return _Named(policy.name, {}, lambda _text, _settings: policy)


def _of_vowpal(policy: Policy) -> _Named:
    def make(_text: str, _settings: Mapping[str, float]) -> Policy:
        if not has_vowpal():
            raise InvalidArgumentError(_FIELD, f"{policy.name} needs vowpalwabbit: pip install 'topk-bandit[rivals]'")
        return policy

    return _Named(policy.name, {}, make)


def has_vowpal() -> bool:
    """Return whether the package is installed that two of the policies need."""
    return find_spec("vowpalwabbit") is not None


_NAMED: Mapping[str, _Named] = {
    "service": _Named(
        SERVICE,
        {
            "beta-scale": DEFAULT_BETA_SCALE,
            "uniform-share": DEFAULT_EXPLORATION.uniform_share,
            "near-share": DEFAULT_EXPLORATION.near_share,
            "shares-fall-after": DEFAULT_EXPLORATION.shares_fall_after,
            "rows": math.inf,
            "half-life": math.inf,
            "item-values": 0.0,
        },
        _service,
    ),
    "random": _without_settings(random_slates()),
    "popularity": _without_settings(Policy("popularity", "popularity", Popularity.of)),
    "linear": _Named("linear Thompson", {"ridge": 10.0, "width": 0.3, "item-values": 0.0}, _linear),
    "vw-ccb": _of_vowpal(Policy("VW CCB", "VW CCB", VowpalCcb.of)),
    "vw-slates": _of_vowpal(Policy("VW slates", "VW slates", VowpalSlates.of)),
}
"""Infinitely many rows are those of the default memory. With item values they hear what each item did."""
