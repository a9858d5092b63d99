"""Challengers: the bandit of a log under other settings, as policies that the log is asked about.

A challenger learns from the slates that were shown, as a fork does, and chooses for each request what it would have
shown by then. So it never knows the reward of the request that it is asked about. Its draws of exploration are not
those of the log: else its slates would depend on which ones were drawn.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from topk_bandit.bandits.choices import choose_slate
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.commands.log.policies import AskedPolicy
from topk_bandit.commands.operate.arguments import add_changeable
from topk_bandit.commands.operate.forks import Replay
from topk_bandit.commands.operate.making import settings_of
from topk_bandit.commands.printing import progress
from topk_bandit.domain.errors import ExhaustedError, InvalidArgumentError, NotReadyError
from topk_bandit.domain.replacing import replace
from topk_bandit.domain.stages import Stage
from topk_bandit.store.events import Recommended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topk_bandit.bandits.model import Model
    from topk_bandit.commands.log.dumps import Dump
    from topk_bandit.commands.log.slates import AskedRequests
    from topk_bandit.domain.slates import RecommendationRequest
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.events import LoggedEvent

__all__ = ["MOST_CHALLENGERS", "Challenger", "play_challengers", "settings_under", "title_of"]

MOST_CHALLENGERS = 4
"""The best of many looks better than it is, by chance."""

_INCARNATION = "challenger of "

_WITHOUT_EFFECT = frozenset(
    {
        *("stage", "control_share", "guardrail_margin", "conservative_share", "learned_per_second"),
        *("reward_wait", "provisional_after", "reward_aggregation", "requires_activation", "durability"),
    }
)
"""A challenger is live and nothing else, and rewards are those that the log has."""


@dataclass(frozen=True, slots=True)
class Challenger:
    """What a challenger would have shown, by the ids of recommendations; `flags` are its settings."""

    flags: str
    slates: Mapping[str, tuple[str, ...]]

    def policy(self, asked: AskedRequests) -> AskedPolicy:
        """Return it as a policy, on those requests that could show its slates."""
        places = {item_id: place for place, item_id in enumerate(asked.item_ids) if item_id}
        could = np.zeros(len(asked), dtype=bool)
        slates = []
        for row, request in enumerate(asked.requests):
            slate = [places.get(item_id, -1) for item_id in self.slates.get(request.recommendation_id, ())]
            could[row] = bool(slate) and min(slate) >= 0 and bool(asked.eligible[row, slate].all())
            if could[row]:
                slates.append(slate)
        nowhere = InvalidArgumentError("--under", f"{self.flags} could show its slate to no request")
        shown = np.array(slates, dtype=np.int32).reshape(len(slates), asked.slate_size)
        return AskedPolicy(title_of(self.flags), could, shown, nowhere)


def title_of(flags: str) -> str:
    """Return what tables call the challenger under some flags."""
    return f"the bandit under {flags}"


def settings_under(several: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of challengers, by their flags, as `topk-bandit bandits update` takes these.

    Raises
    ------
    InvalidArgumentError
        There are too many, or flags are wrong.
    """
    if len(several) > MOST_CHALLENGERS:
        raise InvalidArgumentError("--under", f"at most {MOST_CHALLENGERS} can be compared, not {len(several)}")
    return {flags: _check_matters(settings_of(_parse(flags))) for flags in several}


def play_challengers(dump: Dump, under: Mapping[str, Mapping[str, Any]], *, limits: Limits) -> list[Challenger]:
    """Return what the bandit of a log would have shown under settings, which have flags for names; show the progress.

    Raises
    ------
    InvalidArgumentError
        The log does not begin with its first event.
    CorruptDataError
        An event can't follow.
    """
    if under and dump.snapshot is not None:
        raise InvalidArgumentError("--under", "needs a log from event 1 on: dump it with --cold-log-dir")
    played = []
    with progress() as bar:
        for flags, changes in under.items():
            events = bar.track(dump.events, description=title_of(flags))
            played.append(Challenger(flags, dict(_play(dump.incarnation, events, Replay(changes), limits))))
    return played


def _play(
    incarnation: str, events: Iterable[LoggedEvent], replay: Replay, limits: Limits
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the id of each recommendation that a policy chose, and what the challenger would have shown instead."""
    model: Model | None = None
    for logged in events:
        if model is not None and isinstance(logged.event, Recommended) and not logged.event.recommendation.baseline:
            slate = _choose(model, logged.event.request)
            if slate:
                yield logged.event.recommendation.recommendation_id, slate
        taken = replace(logged, event=replay.take(logged))
        model = begin(incarnation, taken, limits=limits) if model is None else fold(model, taken)


def _choose(model: Model, request: RecommendationRequest) -> tuple[str, ...]:
    """Return the slate of a challenger, which is live and nothing else; empty where no slate keeps its rules."""
    settings = replace(model.settings, stage=Stage.LIVE, control_share=0.0, conservative_share=0.0)
    own = replace(model, settings=settings, incarnation=_INCARNATION + model.incarnation)
    try:
        return choose_slate(own, replace(request, explain=())).slate
    except (NotReadyError, ExhaustedError):
        return ()


def _check_matters(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a challenger, each of which has to change what it shows."""
    for name in settings:
        if name in _WITHOUT_EFFECT:
            flag = f"--{name.replace('_', '-')}"
            raise InvalidArgumentError("--under", f"{flag} does not change which slates a challenger shows")
    return settings


class _Flags(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidArgumentError("--under", message)


def _parse(flags: str) -> argparse.Namespace:
    parser = _Flags(add_help=False, allow_abbrev=False)
    add_changeable(parser)
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise InvalidArgumentError("--under", str(error)) from None
    if not words:
        raise InvalidArgumentError("--under", "names no setting, such as '--half-life 86400'")
    return parser.parse_args(words)
