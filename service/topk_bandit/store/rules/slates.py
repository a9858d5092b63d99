"""What becomes of a slate: how it is recorded, shown and rewarded, and how it ends.

========== ================================================= ============================================
A slate is after which a reward in time                      and after its deadline
========== ================================================= ============================================
inactive   is active, then as pending                        has lapsed: it was never shown
pending    has ended with it if that is the only one or the  has ended: with what its rewards come to,
           final one; else has collected it                  or without any, which is an expiry
provisional has collected it, and revised what is learned    has ended with what is learned
rewarded   refuses it, unless it is the same once more       counts it as late
expired    (there is none in time)                           counts it as late
lapsed     (there is none in time)                           counts it as late
void       refuses it, unless it is the same once more       counts it as late
========== ================================================= ============================================

Before the table counts what was posted before: the same reward once more changes nothing, in time and after it, and
another value in its place is refused, as other item values are. A slate that is set aside goes the same way, and each
of its events has `aside`. A deadline has passed for a reward by the store's clock; for a correction, once the slate has
ended. See decisions 6, 23, 26, 27, 62 and 78.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.bandits import Aggregation
from topk_bandit.domain.slates import ActivationOutcome, ActivationReceipt, RewardOutcome, RewardReceipt
from topk_bandit.domain.stages import Group
from topk_bandit.store.codec import canonical, fingerprint
from topk_bandit.store.events import (
    Activated,
    Expired,
    Lapsed,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
)
from topk_bandit.store.log import MOST_REWARDS, RecordOutcome, RecordStatus
from topk_bandit.store.recorded import (
    NO_ITEMS,
    NamedItems,
    PostedReward,
    Recorded,
    RecordState,
    aggregate,
    aggregate_items,
    digest_items,
    place_item_values,
)
from topk_bandit.store.refusals import refusal
from topk_bandit.store.rules.decisions import Commit, Decision, appended
from topk_bandit.store.rules.provisional import close, due_of, is_provisional, revise, void
from topk_bandit.store.visits import frequencies_of, visitor_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.domain.slates import Recommendation, RecommendationRequest, Reward
    from topk_bandit.store.events import Event
    from topk_bandit.store.log import Correctable
    from topk_bandit.store.rules.decisions import Known
    from topk_bandit.store.visits import Visits

__all__ = ["Ends", "activate", "correct", "expire", "recall", "record", "reward"]


def record(
    known: Known,
    request: RecommendationRequest,
    recommendation: Recommendation,
    *,
    incarnation: str,
    items_position: int,
    rules: tuple[SlateRule, ...],
    aside: bool,
    visits: Visits | None = None,
) -> Decision[RecordOutcome]:
    """Decide what becomes of a slate that was chosen; see `Store.record_recommendation`."""
    given = recall(known, request, recommendation.recommendation_id)
    if given is not None:
        # Whoever knows other rules can't say whether the slate keeps those of now.
        is_known = rules == known.settings.rules
        return Decision(RecordOutcome(RecordStatus.REPEATED, given) if is_known else RecordOutcome(RecordStatus.STALE))
    chosen = (incarnation, items_position, recommendation.stage, rules)
    if (known.incarnation, known.items_position, known.settings.stage, known.settings.rules) != chosen:
        return Decision(RecordOutcome(RecordStatus.STALE))
    if not _counts_all(known, request, visits):
        return Decision(RecordOutcome(RecordStatus.STALE))
    aside = aside or not recommendation.stage.learns
    state = RecordState.INACTIVE if known.settings.requires_activation else RecordState.PENDING
    asked, kept = _kept(request, recommendation)
    opened = Recorded(fingerprint(request), request.context, kept, 0, state, aside=aside, logged=appended(0))
    commit = Commit(
        events=(Recommended(asked, kept, aside),),
        slates={recommendation.recommendation_id: opened},
        wait_ms=known.settings.reward_wait_ms,
        due_after_ms=None if aside else known.settings.provisional_after_ms,
        items_position=items_position,
        visits=_see(known, request, recommendation, visits),
    )
    return Decision(RecordOutcome(RecordStatus.RECORDED, recommendation, appended(0)), commit)


def _counts_all(known: Known, request: RecommendationRequest, visits: Visits | None) -> bool:
    """Return whether a slate was chosen with all that is known of its visitor, where rules count it."""
    if visits is None:
        return not visitor_of(known.incarnation, known.settings, request)
    return known.visits is not None and known.visits.slates == visits.slates


def _see(
    known: Known, request: RecommendationRequest, recommendation: Recommendation, visits: Visits | None
) -> Visits | None:
    """Return what a visitor has seen with this slate, None where nothing counts it."""
    if visits is None or not visits.is_counted:
        return None
    rules = frequencies_of(known.settings, request)
    return visits.after(recommendation.slate, keep_ms=1000 * max((rule.within_seconds for rule in rules), default=0))


def _kept(
    request: RecommendationRequest, recommendation: Recommendation
) -> tuple[RecommendationRequest, Recommendation]:
    """Return what is recorded of both: nothing of absent items, features that were left out, or the visitor."""
    if not (request.explain or request.known_features_only or request.frequency_key):
        return request, recommendation
    asked = replace(request, explain=(), known_features_only=False, frequency_key="")
    return asked, replace(recommendation, absent=())


def recall(known: Known, request: RecommendationRequest, recommendation_id: str) -> Recommendation | None:
    """Return what a request was answered with, None if it is new; see `Store.find_recommendation`."""
    recorded = known.slates[recommendation_id]
    if recorded is None:
        return None
    if not recorded.has_fingerprint(fingerprint(request)):
        raise refusal("request_id_reused", known.name)
    is_kept = recorded.is_open or recorded.logged >= known.first_position
    if not (is_kept and recorded.recommendation.slate):
        raise refusal("slate_gone", known.name, recommendation_id)
    return recorded.recommendation


def activate(known: Known, recommendation_id: str, slate: Sequence[str]) -> Decision[ActivationReceipt]:
    """Decide what becomes of a slate that was shown, or of another instead of it; see `Store.activate`."""
    recorded = _recorded(known, recommendation_id)
    if recorded.state is RecordState.LAPSED:
        return Decision(ActivationReceipt(ActivationOutcome.LATE), Commit())
    if recorded.state is not RecordState.INACTIVE:
        if not recorded.has_shown(slate):
            raise refusal("activation_exists", known.name, recommendation_id)
        return Decision(ActivationReceipt(ActivationOutcome.DUPLICATE), Commit())
    recommended = recorded.recommendation
    if slate and tuple(slate) != recommended.slate:
        _check_shown(known, slate, size=len(recommended.slate))
        recorded = replace(recorded, instead=tuple(slate))
    if known.now_ms >= recommended.deadline_ms:
        ended, *events = _end(known.settings, recorded, place=0)
        return Decision(ActivationReceipt(ActivationOutcome.LATE), Commit(tuple(events), {recommendation_id: ended}))
    shown, event = _activate(recorded)
    commit = Commit(
        (event,),
        {recommendation_id: shown},
        due_ms=_due(known.settings, recommendation_id, shown),
        before_ms=recommended.deadline_ms,
        items_position=known.items_position if recorded.instead else None,
    )
    return Decision(ActivationReceipt(ActivationOutcome.ACTIVATED, appended(0)), commit)


def reward(known: Known, posted: Reward) -> Decision[RewardReceipt]:
    """Decide what becomes of a reward; see `Store.record_reward`."""
    is_first = known.settings.reward_aggregation is Aggregation.FIRST
    if not (is_first or posted.reward_id):
        raise refusal("no_reward_id", known.name)
    key, reward_id = posted.recommendation_id, "" if is_first else posted.reward_id
    recorded = _recorded(known, key)
    ends = posted.final or (is_first and not is_provisional(known.settings, recorded))
    in_time = known.now_ms < recorded.recommendation.deadline_ms
    before, said = recorded.find_reward(reward_id), digest_items(posted.item_values)
    if before is not None and not (before.posted == posted.value and before.items.has_posted(said)):
        raise refusal("reward_exists", known.name, key)
    if before is not None and not (ends and in_time and recorded.is_open and before.value is not None):
        outcome = RewardOutcome.LATE if before.value is None and not before.position else RewardOutcome.DUPLICATE
        return Decision(RewardReceipt(outcome, before.position), Commit())
    position = appended(int(recorded.state is RecordState.INACTIVE)) if in_time else 0
    if before is not None:
        return _take(known, key, recorded.with_reward(replace(before, position=position)), before, ends=ends)
    _check_takes_more(known, recorded, key, in_time=in_time)
    value, items = _within_range(known, posted.value), _named_items(recorded, posted.item_values)
    taken = PostedReward(recorded.reward_key(reward_id), posted.value, value, position, items)
    taken = taken if in_time else taken.amended(None)
    recorded = recorded.with_reward(taken)
    return _take(known, key, recorded, taken, ends=ends) if in_time else _count_late(known, key, recorded)


def _check_takes_more(known: Known, recorded: Recorded, key: str, *, in_time: bool) -> None:
    """Refuse another reward of a slate that has had its last one, or as many as it can have."""
    if in_time and not recorded.is_open:
        raise refusal("reward_final", known.name, key)
    if len(recorded.rewards) >= MOST_REWARDS:
        raise refusal("reward_count", known.name, key)


def _count_late(known: Known, key: str, recorded: Recorded) -> Decision[RewardReceipt]:
    """Count a reward that came after the deadline, and end the slate if that has not been noticed yet."""
    ended, *events = _end(known.settings, recorded, place=0) if recorded.is_open else (recorded,)
    return Decision(RewardReceipt(RewardOutcome.LATE), Commit(tuple(events), {key: ended}, late=1))


def _take(known: Known, key: str, recorded: Recorded, taken: PostedReward, *, ends: bool) -> Decision[RewardReceipt]:
    """Take in a reward that is in time, and in the record: end the slate with it, or collect it."""
    events: list[Event] = []
    if recorded.state is RecordState.INACTIVE:
        recorded, activated = _activate(recorded)
        events.append(activated)
    position = appended(len(events))
    if is_provisional(known.settings, recorded):
        return _take_provisionally(known, key, recorded, taken, events, ends=ends)
    if ends:
        recorded, *ending = _end(known.settings, recorded, place=len(events))
        events += ending
    else:
        events.append(_collected(recorded, taken))
    commit = Commit(
        tuple(events),
        {key: recorded},
        clamped=_count_clamped(taken, position),
        before_ms=recorded.recommendation.deadline_ms,
    )
    return Decision(RewardReceipt(RewardOutcome.ACCEPTED, position), commit)


def _take_provisionally(
    known: Known, key: str, recorded: Recorded, taken: PostedReward, events: list[Event], *, ends: bool
) -> Decision[RewardReceipt]:
    """Collect a reward of a slate whose reward so far is learned; before its first time nothing is, but for FIRST."""
    position, settings, given = appended(len(events)), known.settings, recorded.recommendation
    events.append(_collected(recorded, taken))
    first_ms, is_first = due_of(settings, recorded), settings.reward_aggregation is Aggregation.FIRST
    is_learned = ends or is_first or recorded.state is RecordState.PROVISIONAL or known.now_ms >= first_ms
    if is_learned:
        recorded, revisions = revise(settings, recorded, place=len(events), ends=ends)
        events.extend(revisions)
    commit = Commit(
        tuple(events),
        {key: recorded},
        due_ms={} if ends else _due(settings, key, recorded),
        clamped=_count_clamped(taken, position),
        before_ms=given.deadline_ms if is_learned else min(first_ms, given.deadline_ms),
    )
    return Decision(RewardReceipt(RewardOutcome.ACCEPTED, position), commit)


def _count_clamped(taken: PostedReward, position: int) -> int:
    """Return 1 if the reward arrived at this position as another value than was posted, else 0."""
    return int(taken.position == position and taken.value != taken.posted)


def _due(settings: BanditSettings, key: str, recorded: Recorded) -> dict[str, int]:
    """Return when a slate is looked at next, if that may have changed."""
    return {key: due_of(settings, recorded)} if is_provisional(settings, recorded) and recorded.is_open else {}


def correct(
    known: Known,
    key: str,
    value: float | None,
    *,
    reward_id: str,
    looked_at: Correctable,
    item_values: Mapping[str, float],
) -> Decision[RewardReceipt | None]:
    """Decide what becomes of a reward that is replaced, or taken back; see `Store.correct_reward`."""
    recorded = _recorded(known, key)
    if recorded.state in {RecordState.EXPIRED, RecordState.LAPSED}:
        raise refusal("no_reward", known.name, key)
    if recorded.state is RecordState.VOID:
        if value is None:
            return Decision(RewardReceipt(RewardOutcome.DUPLICATE), Commit())
        raise refusal("reward_void", known.name, key)
    reward_id = "" if known.settings.reward_aggregation is Aggregation.FIRST else reward_id
    chosen = recorded.find_accepted(reward_id)
    ends = value is None and not reward_id and recorded.is_open
    if not (chosen or ends):
        raise refusal("no_reward", known.name, key)
    value = None if value is None else _replacement(known, key, chosen, value)
    said = digest_items(item_values)
    if not ends and all(one.value == value and said in {"", one.items.named} for one in chosen):
        return Decision(RewardReceipt(RewardOutcome.DUPLICATE), Commit())
    if recorded.is_open or recorded.aside:
        most: dict[str, int] | None = {}
    else:
        most = _limits(known, key, recorded, looked_at)
    if most is None:
        return Decision(None)
    items = _replaced_items(recorded, item_values, looked_at) if item_values else None
    changed = [one.amended(value, items and replace(items, posted=one.items.posted)) for one in chosen]
    after, events = _corrected(known.settings, recorded, key, changed, ends=ends)
    commit = Commit(tuple(events), {key: after}, due_ms=_due(known.settings, key, after), most=most)
    return Decision(RewardReceipt(RewardOutcome.ACCEPTED, appended(0)), commit)


def _replacement(known: Known, key: str, chosen: Sequence[PostedReward], value: float) -> float:
    """Return what the one reward that is meant is to be, or refuse it."""
    if len(chosen) > 1:
        raise refusal("no_reward_id", known.name)
    if chosen[0].value is None:
        raise refusal("reward_void", known.name, key)
    return _within_range(known, value)


def _named_items(recorded: Recorded, item_values: Mapping[str, float]) -> NamedItems:
    """Return what is said of the items of a slate, or refuse it; of one that has ended nothing counts any more."""
    if not item_values:
        return NO_ITEMS
    said = digest_items(item_values)
    values = place_item_values(recorded.slate, item_values) if recorded.is_open else None
    return NamedItems(said, said, values)


def _replaced_items(recorded: Recorded, item_values: Mapping[str, float], looked_at: Correctable) -> NamedItems:
    """Return what is to count of a slate's items, or refuse it; of one that was set aside and has ended, nothing is."""
    if recorded.is_open or recorded.aside:
        return _named_items(recorded, item_values)
    return NamedItems(named=digest_items(item_values), values=place_item_values(looked_at.slate, item_values))


def _limits(known: Known, key: str, recorded: Recorded, looked_at: Correctable) -> dict[str, int] | None:
    """Return up to where the positions may go while what was learned can be corrected, None if the model is another.

    New items may take the places of old ones, which folds rewards, and an import does.
    """
    if recorded.position > looked_at.version:
        return None
    if not looked_at.last_position:
        raise refusal("folded", known.name, key)
    most = {
        "items_position": looked_at.version,
        "imported_position": looked_at.version,
        "log_position": looked_at.last_position - 1,
    }
    is_same = (known.incarnation, known.revision) == (looked_at.incarnation, looked_at.revision)
    return most if is_same and all(getattr(known, name) <= limit for name, limit in most.items()) else None


def _corrected(
    settings: BanditSettings, recorded: Recorded, key: str, changed: Sequence[PostedReward], *, ends: bool
) -> tuple[Recorded, Sequence[Event]]:
    after, learned = _with_rewards(recorded, changed), recorded.provisional
    if ends and learned is not None:
        return void(after, place=0)
    if ends:
        never_shown = recorded.state is RecordState.INACTIVE
        gone = Expired(key, None, None, aside=recorded.aside)
        return replace(after, state=RecordState.VOID), [Lapsed(key, recorded.aside) if never_shown else gone]
    if recorded.is_open:
        collected = _collected(recorded, changed[0])
        if learned is None:
            return after, [collected]
        revised, revisions = revise(settings, after, place=1)
        return revised, [collected, *revisions]
    kind = settings.reward_aggregation
    # Nothing was learned of a slate that was set aside, so that nobody else knows what its reward was.
    before = aggregate(kind, recorded.rewards) if recorded.aside else None
    left = aggregate(kind, after.rewards)
    state = RecordState.VOID if left is None else RecordState.REWARDED
    is_learned = left is not None and not recorded.aside
    item_values = aggregate_items(settings, after.rewards) if is_learned else None
    group = recorded.recommendation.group
    replaced = None if group is Group.NONE else aggregate(kind, recorded.rewards)
    amended = RewardAmended(key, left, before, item_values, group, replaced, _given_position(recorded))
    return replace(after, state=state, position=appended(0)), [amended]


class Ends(NamedTuple):
    """How many slates end, and how many of these have no reward."""

    ended: int
    without_reward: int


def expire(known: Known) -> Decision[Ends]:
    """Decide what becomes of slates whose deadlines have passed: all that are known; return how many end.

    One that was restored closed is kept from now on as others are that ended.
    """
    events: list[Event] = []
    slates: dict[str, Recorded] = {}
    due_ms: dict[str, int] = {}
    lost = tuple(key for key, recorded in known.slates.items() if recorded is None)
    for key, recorded in known.slates.items():
        if recorded is None:
            continue
        slates[key], more = _look_at_due(known, recorded, place=len(events))
        events += more
        if slates[key].is_open:
            due_ms[key] = _next_look(known, slates[key])
    ended = [one for key, one in known.slates.items() if one is not None and one.is_open and key not in due_ms]
    without_reward = sum(isinstance(one, Expired | Lapsed) for one in events)
    without_reward += sum(one.provisional is not None and one.provisional.is_default for one in ended)
    commit = Commit(tuple(events), slates, due_ms=due_ms, lost=lost) if known.slates else None
    return Decision(Ends(len(ended), without_reward), commit)


def _look_at_due(known: Known, recorded: Recorded, *, place: int) -> tuple[Recorded, Sequence[Event]]:
    """Return what becomes of a slate that is due, and what is appended."""
    recorded = _set_aside(known, recorded)
    if not recorded.is_open:
        return recorded, ()
    if known.now_ms >= recorded.recommendation.deadline_ms:
        ended, *events = _end(known.settings, recorded, place=place)
        return ended, events
    is_due = recorded.state is RecordState.PENDING and known.now_ms >= due_of(known.settings, recorded)
    return revise(known.settings, recorded, place=place) if is_due else (recorded, ())


def _next_look(known: Known, recorded: Recorded) -> int:
    """Return when a slate that was looked at is due again: one without a reward to learn is when its wait ends."""
    due_ms = due_of(known.settings, recorded)
    return due_ms if due_ms > known.now_ms else recorded.recommendation.deadline_ms


def _end(settings: BanditSettings, recorded: Recorded, *, place: int) -> tuple[Recorded, *tuple[Event, ...]]:
    """End an open slate: with what its rewards come to, without any, or because it was never shown."""
    key = recorded.recommendation.recommendation_id
    if recorded.state is RecordState.PROVISIONAL:
        return (close(recorded),)
    if recorded.state is RecordState.INACTIVE:
        return replace(recorded, state=RecordState.LAPSED), Lapsed(key, recorded.aside)
    value = aggregate(settings.reward_aggregation, recorded.rewards)
    item_values = aggregate_items(settings, recorded.rewards)
    group = recorded.recommendation.group
    if value is not None:
        ended = replace(recorded, state=RecordState.REWARDED, position=appended(place))
        return ended, Rewarded(key, value, recorded.shown, recorded.aside, item_values, group)
    default = settings.default_reward
    if default is None:
        expired = Expired(key, None, None, recorded.aside, group=group, given_position=_given_position(recorded))
    else:
        expired = Expired(key, default + 0.0, recorded.shown, recorded.aside, item_values, group)
    return replace(recorded, state=RecordState.EXPIRED), expired


def _given_position(recorded: Recorded) -> int:
    """Return where a slate with a group was recommended, for an event that has no other word of when that was."""
    return 0 if recorded.recommendation.group is Group.NONE else recorded.logged


def _collected(recorded: Recorded, taken: PostedReward) -> RewardCollected:
    key, value = recorded.recommendation.recommendation_id, taken.value
    return RewardCollected(key, taken.reward_id, value, recorded.aside, taken.items.values)


def _activate(recorded: Recorded) -> tuple[Recorded, Event]:
    key = recorded.recommendation.recommendation_id
    activated = Activated(key, recorded.shown, bool(recorded.instead), aside=recorded.aside)
    return replace(recorded, state=RecordState.PENDING), activated


def _recorded(known: Known, key: str) -> Recorded:
    recorded = known.slates[key]
    if recorded is None:
        raise refusal("no_recommendation", known.name, key)
    return _set_aside(known, recorded)


def _set_aside(known: Known, recorded: Recorded) -> Recorded:
    """Return an open slate as set aside where the stage learns nothing, unless something of it is learned already."""
    is_kept = known.settings.stage.learns or not recorded.is_open or recorded.state is RecordState.PROVISIONAL
    return recorded if is_kept else replace(recorded, aside=True)


def _with_rewards(recorded: Recorded, rewards: Sequence[PostedReward]) -> Recorded:
    for one in rewards:
        recorded = recorded.with_reward(one)
    return recorded


def _within_range(known: Known, value: float) -> float:
    """Return a reward as it is to be learned, or refuse it."""
    taken = known.settings.reward_range
    if taken is None or taken.low <= value <= taken.high:
        return value
    if not taken.clamp:
        raise refusal("out_of_range", known.name, f"{canonical(taken.low)} {canonical(taken.high)}")
    return min(max(value, taken.low), taken.high) + 0.0


def _check_shown(known: Known, slate: Sequence[str], *, size: int) -> None:
    """Refuse what can't have been shown."""
    if len(slate) != size:
        raise refusal("wrong_slate", known.name, size)
    for item_id in slate:
        if item_id not in known.items:
            raise refusal("no_item", known.name, item_id)
