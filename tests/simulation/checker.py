"""Holds the service to its promises: compares responses with the log, and each worker's model with a replay.

The ledger is the callers' only evidence and the archive the log's; nothing here asks the service what it believes to
have done.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.simulation.endings import check_activation, check_corrections, check_revisions, check_rewards
from tests.simulation.ledger import Response

from topk_bandit.bandits.choices import recommendation_id_of
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.domain.bandits import Aggregation
from topk_bandit.store.events import (
    Expired,
    Lapsed,
    Recommended,
    RewardCollected,
    Rewarded,
    RewardRevised,
    SlateEvent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.ledger import Asked, Ledger, Posted
    from tests.simulation.server import Archive

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.events import LoggedEvent

__all__ = ["Replay", "check_ledger"]


class Replay:
    """Folds a log from its first event on, without any snapshot: the model after each position."""

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._events: list[LoggedEvent] = []
        self._models: list[Model] = []

    def model_at(self, archive: Archive, incarnation: str, version: int) -> Model:
        """Return the model of the log as it is now, up to a position."""
        same = min(len(self._events), len(archive.events))
        while same and self._events[same - 1] is not archive.events[same - 1]:
            same -= 1
        del self._models[same:]
        self._events = list(archive.events)
        for logged in self._events[same:]:
            self._models.append(
                fold(self._models[-1], logged) if self._models else begin(incarnation, logged, limits=self._limits)
            )
        return self._models[version - 1]


class _Log:
    """The events of an archive by recommendation."""

    def __init__(self, archive: Archive) -> None:
        self.recommended: dict[str, Recommended] = {}
        self.undone: dict[str, list[Recommended]] = defaultdict(list)
        self.stories: dict[str, list[LoggedEvent]] = defaultdict(list)
        self.repeated: list[str] = []
        self.gaps = [logged.position for place, logged in enumerate(archive.events, 1) if logged.position != place]
        for logged in archive.events:
            self._enter(logged)
        for logged in archive.undone:
            if isinstance(logged.event, Recommended):
                self.undone[logged.event.recommendation.recommendation_id].append(logged.event)

    def _enter(self, logged: LoggedEvent) -> None:
        match logged.event:
            case Recommended(recommendation=recommendation) as event:
                if recommendation.recommendation_id in self.recommended:
                    self.repeated.append(recommendation.recommendation_id)
                self.recommended[recommendation.recommendation_id] = event
            case event if isinstance(event, SlateEvent):
                self.stories[event.recommendation_id].append(logged)


def check_ledger(ledger: Ledger, archive: Archive, *, incarnation: str, settings: BanditSettings) -> list[str]:
    """Return each promise that was broken, in a sentence; of the settings those matter that can't change meanwhile."""
    log = _Log(archive)
    return [
        *ledger.surprises,
        *(f"position {position} is not where it should be in the log" for position in log.gaps),
        *(f"{one} is recorded twice" for one in log.repeated),
        *_check_slates(ledger, log, incarnation),
        *_check_stories(ledger, log, settings),
        *_check_rewards(ledger, log, settings),
    ]


def _check_slates(ledger: Ledger, log: _Log, incarnation: str) -> Iterator[str]:
    known = {recommendation_id_of(incarnation, request_id): calls for request_id, calls in ledger.asked.items()}
    for one in log.recommended.keys() - known.keys():
        yield f"{one} is recorded, and nobody asked for it"
    for one, calls in known.items():
        if one in log.recommended and not any(_can_be_credited(call) for call in calls):
            ending = "and may be learned from: no caller has its id, and each response said that nothing was recorded"
            yield f"{calls[0].request_id} is recorded, {ending}"
        for call in calls:
            if call.answer is not None and call.answer.recommendation_id:
                yield from _check_answer(call, call.answer, one, log)


def _can_be_credited(call: Asked) -> bool:
    """Return whether a caller knows the id, or knows that it knows nothing, and would learn the id by asking again."""
    if call.answer is not None:
        return bool(call.answer.recommendation_id)
    return call.response in {Response.NOTHING, Response.UNAVAILABLE}


def _check_answer(call: Asked, answer: Recommendation, expected_id: str, log: _Log) -> Iterator[str]:
    if answer.recommendation_id != expected_id:
        yield f"{call.request_id} is answered with an id that is not the request's"
    if answer.degraded:
        return
    logged = [*([log.recommended[expected_id]] if expected_id in log.recommended else []), *log.undone[expected_id]]
    if not logged:
        yield f"{call.request_id} was given out, and is not in the log"
    elif all(event.recommendation != answer for event in logged):
        yield f"{call.request_id} was answered with another slate or other propensities than the log has"
    if expected_id not in log.recommended and not log.undone[expected_id]:
        yield f"{call.request_id} is lost, and no failover has undone it"


def _check_stories(ledger: Ledger, log: _Log, settings: BanditSettings) -> Iterator[str]:
    for one in dict.fromkeys([*log.stories, *ledger.activated, *ledger.corrected]):
        story = log.stories.get(one, [])
        ends = sum(map(_is_end, story))
        if ends > 1:
            yield f"{one} ended {ends} times"
        if one not in log.recommended and story:
            yield f"{one} has more in the log than it may, and was never recorded"
        slate = log.recommended[one].recommendation.slate if one in log.recommended else ()
        yield from check_activation(one, slate, story, ledger, settings)
        yield from check_rewards(one, slate, story, ledger, settings)
        yield from check_revisions(one, story, settings)
        yield from check_corrections(one, story, ledger)


def _is_end(logged: LoggedEvent) -> bool:
    event = logged.event
    return isinstance(event, Rewarded | Expired | Lapsed) or (isinstance(event, RewardRevised) and event.is_final)


def _check_rewards(ledger: Ledger, log: _Log, settings: BanditSettings) -> Iterator[str]:
    given: dict[str, list[Asked]] = defaultdict(list)
    for call in (call for calls in ledger.asked.values() for call in calls):
        if call.answer is not None and not call.answer.degraded:
            given[call.answer.recommendation_id].append(call)
    is_first = settings.reward_aggregation is Aggregation.FIRST
    for one, posts in ledger.posted.items():
        for posted in posts:
            yield from _check_reward(posted, posts, log.stories.get(one, []), given.get(one, []), is_first=is_first)


def _learned_at(posted: Posted, story: list[LoggedEvent], *, is_first: bool) -> set[int]:
    """Return where in the log a reward may stand."""
    places = set[int]()
    for logged in story:
        match logged.event:
            case Rewarded(value=value) if not is_first or value == posted.value:
                places.add(logged.position)
            case RewardCollected(reward_id=reward_id, value=value) if (reward_id, value) == (
                posted.reward_id,
                posted.value,
            ):
                places.add(logged.position)
    return places


def _check_reward(
    posted: Posted, posts: list[Posted], story: list[LoggedEvent], given: list[Asked], *, is_first: bool
) -> Iterator[str]:
    one, places = posted.recommendation_id, _learned_at(posted, story, is_first=is_first)
    same_id = [other for other in posts if other is not posted and other.reward_id == posted.reward_id]
    is_alone = all((other.value, other.item_values) == (posted.value, posted.item_values) for other in same_id)
    collected = any(
        isinstance(logged.event, RewardCollected) and logged.event.reward_id == posted.reward_id for logged in story
    )
    match posted.outcome:
        case "accepted" if posted.position not in places:
            yield f"the reward {posted.value} of {one} was acknowledged, and is lost"
        case "duplicate" if posted.position not in {0, *places}:
            yield f"the reward {posted.value} of {one} was acknowledged as one that is there, and is lost"
        case "late" if collected or (is_first and any(isinstance(logged.event, Rewarded) for logged in story)):
            yield f"the reward {posted.value} of {one} was late, and one is learned"
        case "REWARD_EXISTS" if is_alone:
            yield f"the reward {posted.value} of {one} is called another one, and nobody posted another"
        case "not_found" if any(
            call.ended_at <= posted.began_at and call.failovers == posted.failovers for call in given
        ):
            yield f"{one} was given out, and its reward was answered NOT_FOUND without a failover"
