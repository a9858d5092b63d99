"""A bandit's log once more, under other settings, as a new bandit: lines as `ImportEvents` takes them.

The new log has each event of the source at its position: the slates that were shown, and what they earned. Settings
that the fold depends on hold from event 1 on, others from the log's end. What the new bandit would have shown itself,
nobody knows. Slates that are open at the end expire there, since their rewards go to the source.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from topk_bandit.bandits.contexts import check_growth
from topk_bandit.client.bandit_settings import settings_mask, settings_message
from topk_bandit.commands.connection import connect
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.archives import send_lines
from topk_bandit.commands.operate.live_logs import LiveLog, find_log, read_log
from topk_bandit.commands.operate.making import settings_of
from topk_bandit.commands.printing import progress
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError
from topk_bandit.rpc.bandit_settings import masked_change
from topk_bandit.store.archive_lines import End, chain
from topk_bandit.store.archives import ArchivedBandit, write_line
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    Expired,
    Lapsed,
    LoggedEvent,
    Recommended,
    Rewarded,
    RewardRevised,
    SettingsChanged,
    Shown,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from topk_bandit.client import Client
    from topk_bandit.domain.bandits import BanditName, BanditSettings
    from topk_bandit.store.events import Event

__all__ = ["Replay", "fork"]

_FOLDED = ("item_capacity", "half_life", "default_reward", "reward_range")
"""Settings under which a log is learned otherwise; the others decide what is shown, taken or summed from now on."""


def fork(given: argparse.Namespace) -> Iterator[str]:
    """Make a bandit of another one's log under the settings that flags name; go on where the same fork was stopped."""
    source, name, changes = bandit_named(given.source), bandit_named(given.bandit), settings_of(given)
    if name.tenant != source.tenant or name == source:
        raise InvalidArgumentError("NEW", f"must be another bandit of {source.tenant}, not {given.bandit}")
    last, nonce = _begun(given)
    with connect(given, source.tenant) as client:
        log = find_log(client, source, last=last)
        yield f"{given.source} up to event {log.end}: a fork that is stopped goes on with --resume {log.end}-{nonce}"
        fork_id = _id_of(log, name, changes, nonce)
        lines = _fork_lines(client, log, name, changes, incarnation=fork_id)
        with progress() as bar:
            task = bar.add_task(f"{given.source} to {given.bandit}", total=log.end)
            position = send_lines(
                client.import_events,
                name.bandit,
                lines,
                import_id=fork_id,
                source=f"the fork of {given.source}",
                arrived=f"lines of the fork of {given.source}",
                on_progress=lambda sent: bar.update(task, completed=sent),
            )
    yield f"made {given.bandit}: {position} events"


def _begun(given: argparse.Namespace) -> tuple[int | None, str]:
    """Return where a fork ends, None for the log's end, and what tells it from others of the same log."""
    if given.resume is None:
        return given.last, secrets.token_hex(8)
    found = re.fullmatch(r"([1-9][0-9]{0,14})-([0-9a-f]{16})", given.resume, re.ASCII)
    if found is None or given.last is not None:
        raise InvalidArgumentError("--resume", "must be what the first line of the fork said, without --to")
    return int(found[1]), found[2]


def _id_of(log: LiveLog, name: BanditName, changes: Mapping[str, Any], nonce: str) -> str:
    """Return the id of a fork, which it has again where it goes on.

    It is the new bandit's incarnation, too. So one that is made anew after it was deleted has another, as each has.
    """
    settings = sorted((setting, repr(value)) for setting, value in changes.items())
    text = f"{log.name} {log.incarnation} {log.end} {name} {settings} {nonce}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _fork_lines(
    client: Client, log: LiveLog, name: BanditName, changes: Mapping[str, Any], *, incarnation: str
) -> Iterator[str]:
    """Yield the lines of a fork; they are the same whenever they are asked for."""
    digest = ""
    replayed = Replay({key: value for key, value in changes.items() if key in _FOLDED})
    later = {key: value for key, value in changes.items() if key not in _FOLDED}
    count = 0
    for text in _lines(client, log, name, replayed, later, incarnation=incarnation):
        digest, count = chain(digest, text), count + 1
        yield text
    yield write_line(End(count - 1, count, digest))


def _lines(
    client: Client, log: LiveLog, name: BanditName, replayed: Replay, later: Mapping[str, Any], *, incarnation: str
) -> Iterator[str]:
    """Yield the bandit and its events: those of the log, then those that end what is open and change settings."""
    logged: LoggedEvent | None = None
    for text, read in read_log(client, log):
        event = replayed.take(read)
        logged = replace(read, event=event)
        if logged.position == 1:
            yield write_line(_head(name, incarnation, logged))
        yield text if event is read.event else write_line(logged)
    if logged is None:
        raise CorruptDataError("a log begins with the bandit's creation")
    last = [*replayed.end()]
    if later:
        last.append(SettingsChanged(_changed(replayed.settings, later)))
    for event in last:
        logged = LoggedEvent(logged.position + 1, logged.at_ms, event)
        yield write_line(logged)


def _head(name: BanditName, incarnation: str, first: LoggedEvent) -> ArchivedBandit:
    created = first.event
    if not isinstance(created, BanditCreated):
        raise CorruptDataError("a log begins with the bandit's creation")
    return ArchivedBandit(
        name=str(name),
        incarnation=incarnation,
        created_ms=first.at_ms,
        revision=1,
        first_position=1,
        log_position=1,
        settings=created.settings,
        **dict.fromkeys(("items_position", "imported_position", "late_rewards", "clamped_rewards"), 0),
        **dict.fromkeys(("lost_events", "lost_rewards"), 0),
    )


@dataclass(slots=True)
class _OpenSlate:
    """A slate that has not ended: what is shown, or will be, until when, and whether it waits for that."""

    shown: Shown
    deadline_ms: int
    aside: bool
    inactive: bool


@dataclass(slots=True)
class Replay:
    """Turns the events of a log into those of a bandit under other settings, one after the other."""

    changes: Mapping[str, Any]
    open: dict[str, _OpenSlate] = field(default_factory=dict)
    _settings: BanditSettings | None = None

    @property
    def settings(self) -> BanditSettings:
        """Those of the newest event."""
        if self._settings is None:
            raise CorruptDataError("a log begins with the bandit's creation")
        return self._settings

    def take(self, logged: LoggedEvent) -> Event:
        """Return the event in the place of another one; that one itself where it stays."""
        match logged.event:
            case BanditCreated(settings) | SettingsChanged(settings) as event:
                self._settings = _changed(settings, self.changes)
                return event if self._settings == settings else replace(event, settings=self._settings)
            case Recommended(request, given, aside) as event:
                shown = Shown(request.context, given.slate, logged.at_ms)
                inactive = self.settings.requires_activation
                self.open[given.recommendation_id] = _OpenSlate(shown, given.deadline_ms, aside, inactive)
            case Activated(key, shown, _, aside):
                deadline_ms = shown.at_ms + self.settings.reward_wait_ms
                self.open[key] = _OpenSlate(shown, deadline_ms, aside, inactive=False)
            case Expired() as event:
                return self._expire(event, self.open.pop(event.recommendation_id, None), at_ms=logged.at_ms)
            case Rewarded(key) | Lapsed(key):
                self.open.pop(key, None)
            case RewardRevised() as event:  # one that is provisional ends in the fork, with what it earned so far
                self.open.pop(event.recommendation_id, None)
                if "default_reward" in self.changes and (event.is_default or event.was_default):
                    problem = (
                        f"event {logged.position} has the default reward of then as a provisional one, which stays"
                    )
                    raise InvalidArgumentError("--default-reward", problem)
        return logged.event

    def _expire(self, event: Expired, ended: _OpenSlate | None, *, at_ms: int) -> Event:
        """Return the expiry with the default reward of now; of a slate that was taken back nothing is learned."""
        if "default_reward" not in self.changes or event.aside or ended is None or at_ms < ended.deadline_ms:
            return event
        default = self.settings.default_reward
        return replace(event, default_reward=default, shown=None if default is None else ended.shown)

    def end(self) -> Iterator[Event]:
        """Yield what ends the slates that are open: nothing is learned of them."""
        for key, slate in self.open.items():
            yield Lapsed(key, slate.aside) if slate.inactive else Expired(key, None, None, slate.aside)


def _changed(settings: BanditSettings, changes: Mapping[str, Any]) -> BanditSettings:
    """Return settings with those that flags name in the place of others, as a call of `UpdateBandit` changes them."""
    if not changes:
        return settings
    asked = settings_message(changes, parent="")
    changed = masked_change(asked, settings_mask(changes).paths, settings.exploration)(settings)
    check_growth(settings.context_schema, changed.context_schema)
    check_growth(settings.item_schema, changed.item_schema, field="item_schema", may_begin=True)
    return changed
