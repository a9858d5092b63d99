"""The slates of a bandit's log as `learning.evaluation` wants them: what was drawn, from what, and what it earned.

A slate was drawn by the shares of the settings that its model knew, from the items that were available when it was
recorded: the store refuses a slate of older items, and not one of older settings. Rules are those of when it was
recorded, too. That the propensities that were logged are those of `LoggingPolicy`, and under rules those of
`SlateDistribution`, is checked for every slate.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from topk_bandit.bandits.contexts import check_context
from topk_bandit.bandits.items import Items
from topk_bandit.bandits.restored_events import LARGEST_SUM
from topk_bandit.bandits.snapshots import decode_items
from topk_bandit.commands.log.flaws import describe_changes, find_changes, find_flaws, find_odd_draws, find_odd_rewards
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError, TopkBanditError
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import is_about_new
from topk_bandit.domain.slates import rules_of
from topk_bandit.learning.encoding import Encoder
from topk_bandit.learning.evaluation.ruled_log import RuledLog
from topk_bandit.learning.evaluation.slate_log import LoggingPolicy, OtherSlates, SlateLog, slate_log
from topk_bandit.learning.propensities import SlateDistribution
from topk_bandit.learning.relaxed_rules import relax_rules
from topk_bandit.learning.slate_rules import Candidates, keep_rules
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    Expired,
    Imported,
    ItemsChanged,
    Recommended,
    RewardAmended,
    Rewarded,
    RewardRevised,
    SettingsChanged,
)
from topk_bandit.store.visits import frequencies_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topk_bandit.commands.log.dumps import Dump
    from topk_bandit.domain.bandits import BanditSettings, Exploration
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.domain.slates import ItemValues, RecommendationRequest
    from topk_bandit.learning.allowed_slates import AllowedSlates
    from topk_bandit.learning.relaxed_rules import Relaxed
    from topk_bandit.store.events import LoggedEvent

    _Kept: TypeAlias = tuple[tuple[SlateRule, ...], tuple[str, ...] | None, tuple[tuple[str, ...], ...]]

__all__ = ["AskedRequests", "LeftOut", "LoggedRequest", "LoggedSlates", "RuledSlates", "read_slates"]

_ROUNDING = 1e-9


class LeftOut(NamedTuple):
    """How many recommendations a `SlateLog` does not have, by the first reason that holds.

    Attributes
    ----------
    before_snapshot
        Their models are older than what the file begins with, so that their shares are not known.
    without_reward
        They are open, or expired without a default reward.
    without_share
        They were drawn with a uniform share of 0, where some slates are never shown.
    shown_otherwise
        Another slate was shown instead, which was not drawn from a known distribution; see `LoggedSlates.otherwise`.
    baseline
        They are baseline slates: the stage, the group or a lack of candidates asked for them, and no policy chose.
    about_new
        They keep a rule about new items: which items were new then is not in the log.
    paid
        They paid for promised exposures, which contexts decide and no draw: a policy has none to pay.
    before_change
        They were chosen before the bandit's policy changed, where only the newest policy is asked about.
    """

    before_snapshot: int
    without_reward: int
    without_share: int
    shown_otherwise: int = 0
    baseline: int = 0
    about_new: int = 0
    paid: int = 0
    before_change: int = 0


class LoggedRequest(NamedTuple):
    """The id under which a recommendation was given out, and the context that it was asked for with."""

    recommendation_id: str
    context: Context


@dataclass(frozen=True, slots=True, eq=False)
class AskedRequests:
    """Requests that a policy can be asked about.

    Attributes
    ----------
    requests
        Of each slate, its recommendation's id and its context as it was asked for.
    eligible
        Whether an item could be shown, shape (N, n).
    item_ids
        Of the items by their indices.
    slate_size
        How many items a slate has.
    """

    requests: tuple[LoggedRequest, ...]
    eligible: NDArray[np.bool_]
    item_ids: tuple[str, ...]
    slate_size: int

    def __len__(self) -> int:
        return len(self.requests)


@dataclass(frozen=True, slots=True, eq=False)
class RuledSlates:
    """The slates with a reward that were drawn among those that rules allow, in their order."""

    log: RuledLog
    asked: AskedRequests


@dataclass(frozen=True, slots=True, eq=False)
class LoggedSlates:
    """The slates with a reward in the order in which they were given out.

    Attributes
    ----------
    log
        Those where any slate of the items that could be shown could have been; there may be none.
    asked
        Their requests.
    ruled
        Those that were drawn among the slates that rules allow; None if there are none.
    imported
        Counts rows of imports, which are no recommendations: nobody can check what else could have been shown.
    otherwise
        What was shown instead of the slates drawn, where it has a reward.
    outcomes
        What the item at each position of the log's slates earned, shape (N, k); None where these are not known, or do
        not add up to the rewards. An item that nothing is said of earned nothing.
    flaws
        What makes estimates wrong, each a sentence; see `topk_bandit.commands.log.flaws`.
    """

    log: SlateLog
    asked: AskedRequests
    left_out: LeftOut
    imported: int = 0
    otherwise: OtherSlates | None = None
    ruled: RuledSlates | None = None
    outcomes: NDArray[np.float64] | None = None
    flaws: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """A recommendation: where it is logged, what it was drawn from and by which shares, and its reward if it has one.

    Items are indices; `exploration` is None if the settings of the slate's model are not in the file. `allowed` are the
    slates of the eligible items that rules allow, None for all. `learned_to` is the position to which its model had
    learned. `instead` is what was shown instead, if anything was: nothing if it has another size or unknown items.
    """

    position: int
    request: LoggedRequest
    eligible: NDArray[np.int32]
    slate: NDArray[np.int32]
    best: NDArray[np.int32]
    propensity: float
    exploration: Exploration | None
    learned_to: int
    allowed: AllowedSlates | None = None
    reward: float | None = None
    instead: NDArray[np.int32] | None = None
    item_values: ItemValues | None = None


def read_slates(dump: Dump, *, of_newest_policy: bool = False) -> LoggedSlates:
    """Return the slates of a log that begins with its first event or a snapshot.

    Parameters
    ----------
    of_newest_policy
        Whether those are left out that were chosen before the policy changed for the last time: what the others earned
        is what the policy of now earns.

    Raises
    ------
    InvalidArgumentError
        No recommendation has a reward, or none that has one was drawn with a uniform share above 0.
    CorruptDataError
        The log begins in the middle, an event can't follow, or a slate was logged with another propensity than its
        settings, items and best slate give; the message names the event.
    """
    reader = _Reader(dump)
    changes = find_changes(dump.events, reader.first_settings)
    since = reader.since = changes[-1] if changes and of_newest_policy else 0
    for logged in dump.events:
        reader.fold(logged)
    of_all = [one for one in reader.drawn if one.exploration is not None]
    known = [one for one in of_all if one.learned_to >= since]
    as_drawn = [one for one in known if one.instead is None]
    rewarded = [one for one in as_drawn if one.reward is not None]
    otherwise = [one for one in known if one.instead is not None and one.reward is not None]
    if not rewarded:
        raise InvalidArgumentError("log", _nothing_to_evaluate(len(otherwise), len(of_all) - len(known), reader))
    free_known, free_as_drawn = ([one for one in part if one.allowed is None] for part in (known, as_drawn))
    odd = _find_odd(free_known, free_as_drawn, len(reader.items.ids))
    asked_about = [one for one in dump.events if one.position >= since]
    flaws = [*find_flaws(asked_about, is_whole=not since and reader.first_settings is None), *odd]
    mixed = () if of_newest_policy else describe_changes(dump.events, changes)
    _check_ruled([one for one in known if one.allowed is not None])
    # Slates under rules that are too many to be counted are never drawn uniformly.
    used = [one for one, policy in zip(rewarded, _policies(rewarded), strict=True) if policy.uniform_share > 0.0]
    if not used:
        raise InvalidArgumentError("uniform_share", "it is 0: what the log never shows can't be estimated from it")
    left_out = LeftOut(
        before_snapshot=len(reader.drawn) - len(of_all),
        without_reward=len(as_drawn) - len(rewarded),
        without_share=len(rewarded) - len(used),
        shown_otherwise=len(known) - len(as_drawn),
        baseline=reader.baselines,
        about_new=reader.about_new,
        paid=reader.paid,
        before_change=len(of_all) - len(known),
    )
    free, ruled = ([one for one in used if (one.allowed is None) is is_free] for is_free in (True, False))
    return LoggedSlates(
        _slate_log(free, reader.encode(free), len(reader.items.ids)) if free else _no_slates(used[0]),
        reader.asked(free),
        left_out,
        reader.imported,
        reader.others(otherwise, free),
        RuledSlates(_ruled_log(ruled, reader.encode(ruled), len(reader.items.ids)), reader.asked(ruled))
        if ruled
        else None,
        _outcomes(free),
        (*flaws, *mixed),
    )


def _nothing_to_evaluate(otherwise: int, before_change: int, reader: _Reader) -> str:
    if not otherwise:
        kinds = {
            "baseline slates": reader.baselines,
            "slates under rules about new items": reader.about_new,
            "slates that paid for promised exposures": reader.paid,
            "slates of before the policy changed": before_change,
        }
        beside = "".join(f"; its {count:,} {kind} are left out" for kind, count in kinds.items() if count)
        return f"no slate of the bandit's own in it has a reward{beside}"
    problem = (
        f"no slate has a reward that was shown as drawn: {otherwise:,} have one instead of which another was shown"
    )
    return (
        f"{problem}. Nobody knows the probability of those, so no estimate holds: show slates as they are recommended"
    )


class _Reader:
    """Folds events into slates and their rewards; what it counts alone is counted from the event `since` on."""

    def __init__(self, dump: Dump) -> None:
        self.drawn: list[_Drawn] = []
        self.baselines = 0
        self.about_new = 0
        self.paid = 0
        self.imported = 0
        self.since = 0
        self.items = Items()
        self._encoder: Encoder | None = None
        self._relaxed: dict[_Kept, Relaxed] = {}
        self._indices: dict[str, int] = {}
        self._settings: list[BanditSettings] = []
        self._since: list[int] = []
        self._last = 0
        self.first_settings: BanditSettings | None = None
        if dump.snapshot is not None:
            settings, self.items, self._encoder = decode_items(dump.snapshot.payload)
            self._last = dump.snapshot.position
            self.first_settings = settings
            self._change_settings(settings, self._last)
        elif not (dump.events and isinstance(dump.events[0].event, BanditCreated)):
            found = type(dump.events[0].event).__name__ if dump.events else "nothing"
            raise CorruptDataError(f"a log begins with BanditCreated or a snapshot, not with {found}")
        else:
            self._last = dump.events[0].position - 1

    def fold(self, logged: LoggedEvent) -> None:
        """Take in the next event."""
        if logged.position != self._last + 1:
            raise CorruptDataError(f"event {logged.position} can't follow event {self._last}")
        self._last = logged.position
        _check_reward(logged)
        match logged.event:
            case BanditCreated(settings, _) | SettingsChanged(settings, _):
                self._change_settings(settings, logged.position)
            case ItemsChanged() as change:
                self.items = self.items.apply(change)
                self._relaxed = {}
            case Recommended() as event:
                self._take(event, logged.position)
            case Activated(recommendation_id, shown, True):
                self._note_other(recommendation_id, shown.slate)
            case Imported() as event:
                self._pass_over(event)
            case RewardAmended(recommendation_id, value) | RewardRevised(recommendation_id, value) as event:
                self._end(recommendation_id, value, event.item_values)
            case Rewarded(recommendation_id, value, _) | Expired(recommendation_id, value, _) as event:
                self._end(recommendation_id, value, event.item_values)

    def _take(self, event: Recommended, position: int) -> None:
        """Take in a slate; one that no policy chose, that paid, or of rules about new items, is counted alone."""
        self._observe(event.request.context)
        if event.recommendation.baseline:
            self.baselines += position >= self.since
        elif any(is_about_new(one.rule) for one in self._rules_of(event.request)):
            self.about_new += position >= self.since
        elif event.recommendation.paid:
            self.paid += position >= self.since
        else:
            self._indices[event.recommendation.recommendation_id] = len(self.drawn)
            self.drawn.append(self._draw(event, position))

    def _rules_of(self, request: RecommendationRequest) -> tuple[SlateRule, ...]:
        return rules_of(self._settings[-1], request)  # the store refuses a slate of rules of before

    def _note_other(self, recommendation_id: str, slate: tuple[str, ...]) -> None:
        index = self._indices.get(recommendation_id)
        if index is None:
            return
        try:
            shown = self.items.find_indices(slate)
        except TopkBanditError:
            shown = np.empty(0, dtype=np.int32)
        self.drawn[index] = replace(self.drawn[index], instead=shown)

    def _pass_over(self, event: Imported) -> None:
        self.imported += len(event.slates) if self._last >= self.since else 0
        for slate in event.slates:
            self._observe(slate.context)

    def asked(self, drawn: Sequence[_Drawn]) -> AskedRequests:
        """Return the requests of slates."""
        # Nothing is taken back here: an index is one item's for the whole log.
        ids = tuple(item_id or "" for item_id in self.items.ids)
        size = self._settings[-1].slate_size
        return AskedRequests(tuple(one.request for one in drawn), _mask(drawn, len(ids)), ids, size)

    def encode(self, drawn: Sequence[_Drawn]) -> NDArray[np.float64]:
        """Return the contexts of slates; features as after the last event, and what all share as the last number."""
        return np.array([self._encode(one.request.context) for one in drawn])

    def others(self, drawn: Sequence[_Drawn], used: Sequence[_Drawn]) -> OtherSlates | None:
        """Return what was shown instead of slates, beside those that are used; None if nothing is known of it."""
        known = [one for one in drawn if one.instead is not None and len(one.instead) == len(one.best)]
        if not known:
            return None
        return OtherSlates(
            self.encode(known),
            np.array([one.instead for one in known]),
            np.array([one.reward for one in known], dtype=float),
            np.searchsorted([one.position for one in used], [one.position for one in known]),
        )

    def _encode(self, context: Context) -> NDArray[np.float64]:
        if self._encoder is None or not isinstance(context, Features):
            return np.array(context)
        return np.append(self._encoder.encode(context).context, 1.0)

    def _observe(self, context: Context) -> None:
        if self._encoder is not None and isinstance(context, Features):
            self._encoder = self._encoder.observe(context)

    def _change_settings(self, settings: BanditSettings, position: int) -> None:
        self._settings.append(settings)
        self._since.append(position)
        if settings.context_schema is not None:
            known = self._encoder or Encoder.initial(settings.context_schema)
            self._encoder = known.with_schema(settings.context_schema)

    def _draw(self, event: Recommended, position: int) -> _Drawn:
        request, recommendation = event.request, event.recommendation
        size = self._settings[-1].slate_size
        index = bisect_right(self._since, recommendation.model_version) - 1
        try:
            check_context(self._settings[-1], request.context)
            eligible, allowed = self._find_showable(request)
            slate = self.items.find_indices(recommendation.slate)
            best = self.items.find_indices(recommendation.best_slate or recommendation.slate)
        except TopkBanditError as error:
            raise CorruptDataError(f"event {position}: {error}") from error
        for shown in (slate, best):
            if len(shown) != size or len(np.intersect1d(shown, eligible)) != size:
                raise CorruptDataError(f"event {position}: a slate is not of {size} items that could be shown")
        exploration = _exploration_of(self._settings[index], recommendation.observations) if index >= 0 else None
        asked = LoggedRequest(recommendation.recommendation_id, request.context)
        learned_to = recommendation.model_version
        return _Drawn(
            position, asked, eligible, slate, best, recommendation.propensity, exploration, learned_to, allowed
        )

    def _find_showable(self, request: RecommendationRequest) -> tuple[NDArray[np.int32], AllowedSlates | None]:
        """Return the items that could be shown, and the slates of them that rules allow; None for all."""
        eligible, rules = self.items.find_eligible(request.candidates).places, self._rules_of(request)
        if not rules:
            return eligible, None
        if self.items.catalogue is None:
            raise CorruptDataError("the snapshot that the file begins with has no features of items, which rules need")
        key = (rules, request.candidates, request.reached)
        if key not in self._relaxed:  # what is counted for one request is counted for all that are like it
            reached = dict(zip(frequencies_of(self._settings[-1], request), request.reached, strict=False))
            candidates = Candidates(self.items.catalogue.table, eligible, reached=reached)
            self._relaxed[key] = relax_rules(rules, candidates, self._settings[-1].slate_size)
        found = self._relaxed[key]
        return found.places.astype(np.int32), None if found.allowed.rules.allow_all else found.allowed

    def _end(self, recommendation_id: str, reward: float | None, item_values: ItemValues | None) -> None:
        """Note how a recommendation ended, or that it ended otherwise; one from before the snapshot is in no event."""
        index = self._indices.get(recommendation_id)
        if index is not None:
            self.drawn[index] = replace(self.drawn[index], reward=reward, item_values=item_values)


def _exploration_of(settings: BanditSettings, observations: int) -> Exploration:
    """Return the exploration, with the shares of then, that a slate was drawn by after so many learned rewards."""
    return settings.exploration if settings.half_life_ms else settings.exploration.after(observations)


def _find_odd(known: Sequence[_Drawn], as_drawn: Sequence[_Drawn], n_items: int) -> Iterator[str]:
    """Check the propensities of all slates that are known; yield how their draws, and missing rewards, are odd."""
    if not known:
        return
    policy, slates = _policy(known, n_items), _slates(known)
    logged, computed = np.array([one.propensity for one in known]), policy.propensities(slates)
    differs = np.flatnonzero(~np.isclose(logged, computed, rtol=_ROUNDING, atol=0.0))
    if len(differs):
        raise _other_propensity(known[differs[0]], float(computed[differs[0]]), more=len(differs) - 1)
    yield from find_odd_draws(policy, slates)
    if as_drawn:
        rewards, positions = [one.reward for one in as_drawn], [one.position for one in as_drawn]
        of_drawn = policy if len(as_drawn) == len(known) else _policy(as_drawn, n_items)
        yield from find_odd_rewards(of_drawn, _slates(as_drawn), rewards, positions)


def _policy(drawn: Sequence[_Drawn], n_items: int) -> LoggingPolicy:
    return LoggingPolicy(_mask(drawn, n_items), np.array([one.best for one in drawn]), *_shares(drawn))


def _check_ruled(drawn: Sequence[_Drawn]) -> None:
    for one, policy in zip(drawn, _policies(drawn), strict=True):
        places = np.searchsorted(one.eligible, np.array([one.best, one.slate]))
        if policy.allowed is not None and not keep_rules(policy.allowed.rules, places).all():
            raise CorruptDataError(f"event {one.position}: a slate breaks a rule of its request or of its bandit")
        computed = policy.propensity(one.slate)
        if not math.isclose(one.propensity, computed, rel_tol=_ROUNDING):
            raise _other_propensity(one, computed)


def _policies(drawn: Sequence[_Drawn]) -> list[SlateDistribution]:
    """Return what slates were drawn from, as the decisions had it."""
    return [
        SlateDistribution.of(one.exploration, one.best, one.eligible, one.allowed)
        for one in drawn
        if one.exploration is not None
    ]


def _check_reward(logged: LoggedEvent) -> None:
    """Raise `CorruptDataError` for a reward that no service takes, nor several together come to."""
    value = getattr(logged.event, "value", None) or getattr(logged.event, "default_reward", None) or 0.0
    if abs(value) > LARGEST_SUM:
        raise CorruptDataError(f"event {logged.position}: no service takes the reward {value:g}")


def _other_propensity(drawn: _Drawn, computed: float, *, more: int = 0) -> CorruptDataError:
    also = f"; {more:,} more are wrong" if more else ""
    return CorruptDataError(
        f"event {drawn.position}: the slate was logged with the propensity {drawn.propensity!r}; "
        f"its settings, items and best slate give {computed!r}{also}"
    )


def _ruled_log(drawn: Sequence[_Drawn], contexts: NDArray[np.float64], n_items: int) -> RuledLog:
    rewards = np.array([one.reward for one in drawn], dtype=float)
    return RuledLog(contexts, tuple(_policies(drawn)), _slates(drawn), rewards, n_items)


def _slate_log(drawn: Sequence[_Drawn], contexts: NDArray[np.float64], n_items: int) -> SlateLog:
    near, uniform = _shares(drawn)
    return slate_log(
        contexts,
        _mask(drawn, n_items),
        _slates(drawn),
        np.array([one.reward for one in drawn]),
        best=np.array([one.best for one in drawn]),
        near_share=near,
        uniform_share=uniform,
    )


def _no_slates(like: _Drawn) -> SlateLog:
    """Return a log without requests."""
    slates, none = np.empty((0, len(like.best)), dtype=np.int32), np.empty(0)
    policy = LoggingPolicy(np.zeros((0, 1), dtype=bool), slates, none, none)
    return SlateLog(np.empty((0, 1)), policy, slates, none)


def _outcomes(drawn: Sequence[_Drawn]) -> NDArray[np.float64] | None:
    """Return what items earned, where that is known of any and adds up to all rewards."""
    if all(one.item_values is None for one in drawn):
        return None
    nothing = (None,) * len(drawn[0].slate)
    outcomes = np.array([[value or 0.0 for value in one.item_values or nothing] for one in drawn])
    rewards = np.array([one.reward for one in drawn], dtype=float)
    return outcomes if np.allclose(outcomes.sum(axis=1), rewards) else None


def _slates(drawn: Sequence[_Drawn]) -> NDArray[np.int32]:
    return np.array([one.slate for one in drawn])


def _mask(drawn: Sequence[_Drawn], n_items: int) -> NDArray[np.bool_]:
    mask = np.zeros((len(drawn), n_items), dtype=bool)
    for row, one in enumerate(drawn):
        mask[row, one.eligible] = True
    return mask


def _shares(drawn: Sequence[_Drawn]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the probabilities of a slate near the best one and of one drawn uniformly, altogether."""
    of_each = [one.exploration for one in drawn if one.exploration is not None]
    uniform = np.array([one.uniform_share for one in of_each])
    return (1.0 - uniform) * np.array([one.near_share for one in of_each]), uniform
