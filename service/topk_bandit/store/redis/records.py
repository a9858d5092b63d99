"""How a recommendation is kept in Redis: a text while it is open, then a few digests (`lua/closed.lua`).

The text is ``state deadline_ms fingerprint logged position rewards at_ms context instead recommendation``, with "-" for
a context, or for another slate than the recommended one, that is missing. A state is followed by "+" if it sets the
slate aside, and by ``:value:learned_ms:`` and "default" or "reward" if it is provisional; then ``:`` and the item
values that are learned, if any are. Each reward is a list of its id, the values as it was posted and as it counts, its
position in the log, and what it says of items, if it does: two digests and item values. These are joined by commas,
with "-" for what is not known.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.domain.stages import Group
from topk_bandit.store.codec import canonical, decode_event, encode_context, encode_recommended
from topk_bandit.store.events import Activated, Recommended
from topk_bandit.store.recorded import (
    NO_ITEMS,
    UNKNOWN_ITEMS,
    NamedItems,
    PostedReward,
    Provisional,
    Recorded,
    RecordState,
)
from topk_bandit.store.redis.replies import read_logged, read_recommendation, verify_reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.slates import ItemValues
    from topk_bandit.store.documents import Document

__all__ = ["Filed", "closed_parts", "pack_new", "pack_record", "read_filed", "read_record", "repack", "settle"]

# What stands in a text for the time when it is committed, and for the deadline that it has from then on.
_NOW, _DEADLINE = "\2", "\3"
_NOTHING, _ASIDE = b"-", b"+"
_KINDS = ("default", "reward")
_STATES = (RecordState.REWARDED, RecordState.EXPIRED, RecordState.LAPSED, RecordState.VOID)
_OTHER_SLATE, _SET_ASIDE, _IN_GROUP = 8, 16, 32
_GROUPS = (Group.NONE, Group.BANDIT, Group.CONTROL, Group.CONSERVATIVE)
_FINGERPRINT_DIGITS, _SLATE_DIGITS, _REWARD_BYTES = 8, 6, 8
_ITEMS_BYTES = len(UNKNOWN_ITEMS) // 2
_NO_DIGEST = b"\xff" * _ITEMS_BYTES
_ITEM_VALUE = struct.Struct(">d")


@verify_reading
def read_record(key: str, packed: bytes) -> Recorded:
    """Return a record from its text; one that was restored closed has no context."""
    state, deadline_ms, fingerprint, logged, position, rewards, at_ms, context, instead, given = packed.split(b" ", 9)
    state, *learned = state.split(b":")
    shown = _read_shown(key, context) if context != _NOTHING else ()
    return Recorded(
        fingerprint=fingerprint.decode(),
        context=shown,
        recommendation=read_recommendation(deadline_ms, given),
        at_ms=0 if at_ms == _NOTHING else int(at_ms),
        state=RecordState(state.removesuffix(_ASIDE).decode()),
        rewards=tuple(_read_reward(*one) for one in json.loads(rewards)),
        logged=int(logged),
        position=int(position),
        instead=() if instead == _NOTHING else tuple(json.loads(instead)),
        aside=state.endswith(_ASIDE),
        provisional=_read_provisional(*learned) if learned else None,
    )


def _read_provisional(value: bytes, learned_ms: bytes, kind: bytes, items: bytes = b"") -> Provisional:
    is_default = _KINDS.index(kind.decode()) == 0
    return Provisional(float(value), int(learned_ms), is_default, _read_items(items.decode()))


def _state_text(recorded: Recorded) -> str:
    learned = recorded.provisional
    if not recorded.is_open or learned is None:
        return recorded.state + (_ASIDE.decode() if recorded.aside else "")
    kind = _KINDS[0] if learned.is_default else _KINDS[1]
    items = "" if learned.item_values is None else f":{_items_text(learned.item_values)}"
    return f"{recorded.state}:{canonical(learned.value)}:{learned.learned_ms or _NOW}:{kind}{items}"


def _items_text(values: ItemValues | None) -> str:
    return ",".join("-" if value is None else canonical(value) for value in values or ())


def _read_items(text: str) -> ItemValues | None:
    return tuple(None if value == "-" else float(value) for value in text.split(",")) if text else None


def _read_shown(key: str, context: bytes) -> Any:  # noqa: ANN401 - a context
    event_text = (
        b'{"v":1,"type":"activated","recommendation_id":%b,"shown":{"context":%b,"slate":[],"at_ms":0},"instead":false}'
    )
    event = decode_event(event_text % (json.dumps(key).encode(), context))
    return event.shown.context if isinstance(event, Activated) else ()


def _read_reward(reward_id: str, posted: str, value: str, position: str, *items: str) -> PostedReward:
    named = NamedItems(items[0], items[1], _read_items(items[2])) if items else NO_ITEMS
    return PostedReward(reward_id, float(posted), None if value == "-" else float(value), int(position), named)


def pack_record(recorded: Recorded, version: int) -> bytes:
    """Return a record as its text."""
    given = recorded.recommendation
    event = Recommended(RecommendationRequest("", (), None), replace(given, deadline_ms=0))
    at_ms, context = (str(recorded.at_ms), encode_context(recorded.context)) if recorded.is_open else ("-", _NOTHING)
    return _text(recorded, str(given.deadline_ms), at_ms, context, encode_recommended(event, version)[0])


def pack_new(recorded: Recorded, recommendation: bytes) -> bytes:
    """Return the text of a record that is dated when it is committed, with the text of its recommendation."""
    return _text(recorded, _DEADLINE, _NOW, encode_context(recorded.context), recommendation)


def repack(recorded: Recorded, packed: bytes) -> bytes:
    """Return the text of an open record after a change; all that can't change is as it was in `packed`."""
    _, deadline_ms, _, _, _, _, at_ms, context, _, recommendation = packed.split(b" ", 9)
    return _text(recorded, deadline_ms.decode(), at_ms.decode(), context, recommendation)


def _text(recorded: Recorded, deadline_ms: str, at_ms: str, context: bytes, recommendation: bytes) -> bytes:
    parts = (
        _state_text(recorded),
        deadline_ms,
        recorded.fingerprint,
        _position_text(recorded.logged),
        _position_text(recorded.position),
        f"[{','.join(map(_reward_text, recorded.rewards))}]",
        at_ms,
    )
    instead = _pack_list(recorded.instead) if recorded.instead else "-"
    return b" ".join([*(part.encode() for part in parts), context, instead.encode(), recommendation])


def _position_text(position: int) -> str:
    """Return a position as it stands in a text: one that `appended` stands for is put in when it is known."""
    return str(position) if position >= 0 else f"\1{-1 - position}\1"


def settle(packed: bytes, *, first: int, at_ms: int, wait_ms: int) -> bytes:
    """Return a text as `lua/bandit/commit.lua` keeps it, where the first event of the commit is at `first`."""
    dated = packed.replace(_NOW.encode(), b"%d" % at_ms).replace(_DEADLINE.encode(), b"%d" % (at_ms + wait_ms))
    return re.sub(rb"\x01(\d+)\x01", lambda place: b"%d" % (first + int(place[1])), dated)


def _reward_text(reward: PostedReward) -> str:
    value = "-" if reward.value is None else canonical(reward.value)
    text, items = _pack_list([reward.reward_id, canonical(reward.posted), value]), reward.items
    named = "" if items == NO_ITEMS else f',"{items.posted}","{items.named}","{_items_text(items.values)}"'
    return f'{text[:-1]},"{_position_text(reward.position)}"{named}]'


def _pack_list(values: Sequence[object]) -> str:
    """Return a list as JSON without any space, as the digest of a slate is made of it."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return text.replace("/", "\\/").replace(" ", "\\u0020").replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True)
class Filed(Recorded):
    """What is left of a recommendation that is closed: of the request, the slate and ids of rewards only digests.

    Attributes
    ----------
    slate_digest
        Of the slate that was shown.
    """

    slate_digest: int = 0

    def has_fingerprint(self, other: str) -> bool:
        """See `Recorded.has_fingerprint`."""
        return self.fingerprint == other[:_FINGERPRINT_DIGITS]

    def has_shown(self, slate: Sequence[str]) -> bool:
        """See `Recorded.has_shown`."""
        return _slate_digest(slate) == self.slate_digest if slate else not self.instead

    def reward_key(self, reward_id: str) -> str:
        """See `Recorded.reward_key`; the digest of an id stands for it."""
        return _reward_digest(reward_id)


@verify_reading
def read_filed(key: str, filed: Sequence[Any], logged: bytes) -> Filed:
    """Return what is left of a recommendation; its slate where `logged` is the event that gave it out."""
    kind, fingerprint, slate, deadline_ms, position_logged, position, *rewards = filed
    placed, state = divmod(int(kind), _IN_GROUP)
    given = read_logged(logged, key) if logged else _gone(key)
    return Filed(
        fingerprint=f"{int(fingerprint):0{_FINGERPRINT_DIGITS}x}",
        context=(),
        recommendation=replace(given, deadline_ms=int(deadline_ms), group=_GROUPS[placed]),
        at_ms=0,
        state=_STATES[state % _OTHER_SLATE - 1],
        rewards=tuple(_read_filed_reward(*one) for one in rewards),
        position=int(position),
        instead=("",) if state % _SET_ASIDE >= _OTHER_SLATE else (),
        aside=state >= _SET_ASIDE,
        logged=int(position_logged),
        slate_digest=int(slate),
    )


def _gone(key: str) -> Recommendation:
    """Return what stands for a recommendation of which nothing but its id is known."""
    return Recommendation(key, (), 0.0, 0.0, 0.0, 0.0, 0.0, explored=False, model_version=0, observations=0)


def _read_filed_reward(digest: bytes, posted: bytes, value: bytes, position: bytes, items: bytes = b"") -> PostedReward:
    named = _read_filed_items(items) if items else NO_ITEMS
    return PostedReward(digest.hex(), float(posted), None if value == b"-" else float(value), int(position), named)


def _read_filed_items(filed: bytes) -> NamedItems:
    digests = (filed[start : start + _ITEMS_BYTES] for start in (0, _ITEMS_BYTES))
    posted, named = ("" if one == _NO_DIGEST else one.hex() for one in digests)
    values = tuple(None if math.isnan(one) else one for (one,) in _ITEM_VALUE.iter_unpack(filed[2 * _ITEMS_BYTES :]))
    return NamedItems(posted, named, values or None)


def _filed_items(items: NamedItems) -> list[str]:
    """Return what is kept of item values in hexadecimal: two digests, and the numbers; nothing where there are none."""
    if items == NO_ITEMS:
        return []
    digests = (bytes.fromhex(one) or _NO_DIGEST for one in (items.posted, items.named))
    numbers = (_ITEM_VALUE.pack(math.nan if value is None else value) for value in items.values or ())
    return [b"".join([*digests, *numbers]).hex()]


def closed_parts(recorded: Recorded) -> list[Document | int | str]:
    """Return what is kept of a closed record, as `close_record` of `lua/filing.lua` takes it."""
    is_filed = isinstance(recorded, Filed)
    state = _STATES.index(recorded.state) + 1
    state += (_OTHER_SLATE if recorded.instead else 0) + (_SET_ASIDE if recorded.aside else 0)
    state += _IN_GROUP * _GROUPS.index(recorded.recommendation.group)
    slate = recorded.slate_digest if isinstance(recorded, Filed) else _slate_digest(recorded.slate)
    rewards: list[Any] = [
        [
            one.reward_id if is_filed else _reward_digest(one.reward_id),
            one.posted,
            one.value == one.posted or (False if one.value is None else one.value),
            one.position,
            *_filed_items(one.items),
        ]
        for one in recorded.rewards
    ]
    fingerprint = int(recorded.fingerprint[:_FINGERPRINT_DIGITS], 16)
    deadline_ms = recorded.recommendation.deadline_ms
    return [state, fingerprint, slate, deadline_ms, recorded.logged, recorded.position, *rewards]


def _slate_digest(slate: Sequence[str]) -> int:
    return int(_sha1(_pack_list(list(slate)))[:_SLATE_DIGITS], 16)


def _reward_digest(reward_id: str) -> str:
    return _sha1(reward_id)[: 2 * _REWARD_BYTES] if reward_id else ""


def _sha1(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
