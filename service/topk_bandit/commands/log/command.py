"""What `topk-bandit log dump`, `replay`, `diff`, `find` and `evaluate` do."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TextIO

from topk_bandit.bandits.budget import MIB, MemoryBudget
from topk_bandit.bandits.choices import recommendation_id_of
from topk_bandit.commands.log import challengers, dumps, models, policies, slates, values
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.printing import in_utf8, print_lines
from topk_bandit.commands.whole_files import write_whole
from topk_bandit.domain.errors import ConfigurationError, CorruptDataError, InvalidArgumentError
from topk_bandit.process import settings
from topk_bandit.store.codec import encode_event
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.embedded import reach_store
from topk_bandit.store.event_keys import group_key, recommendation_key
from topk_bandit.store.event_lines import event_line
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
    from pathlib import Path

    from topk_bandit.bandits.model import Model
    from topk_bandit.commands.log.challengers import Challenger
    from topk_bandit.commands.log.dumps import Dump
    from topk_bandit.commands.log.policies import AskedPolicy
    from topk_bandit.commands.log.slates import AskedRequests
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.operators import EventText
    from topk_bandit.learning.limits import Limits
    from topk_bandit.process.settings import Settings
    from topk_bandit.store.events import LoggedEvent

__all__ = ["diff", "dump", "evaluate", "find", "limits_of", "replay"]

_NAMES = ("recommendation_id", "request_id", "group_key")
_WIDTH = 24
_PATIENCE_SECONDS = 10.0  # nobody waits for a slate here


def dump(given: argparse.Namespace) -> int:
    """Write a log down; return 0."""
    chosen, name = settings.load(given, os.environ), bandit_named(given.bandit)
    with ExitStack() as stack:
        url = chosen.redis_url or stack.enter_context(reach_store(chosen.data_dir, fsync=chosen.fsync))
        asyncio.run(_write_dump(chosen, url, name, last=given.last, path=given.out))
    return 0


def find(given: argparse.Namespace) -> int:
    """Print the events that have a name; return 0, and raise `InvalidArgumentError` where there is none."""
    chosen, name = settings.load(given, os.environ), bandit_named(given.bandit)
    with ExitStack() as stack:
        url = chosen.redis_url or stack.enter_context(reach_store(chosen.data_dir, fsync=chosen.fsync))
        found, missing = asyncio.run(_find_events(chosen, url, name, given))
    if not found:
        flag = next(word for word in _NAMES if getattr(given, word) is not None)
        gone = f"; {missing:,} older events are in no file of the cold log" if missing else ""
        raise InvalidArgumentError(f"--{flag.replace('_', '-')}", f"no event that can be read has it{gone}")
    lines = (
        event_line(one.position, one.at_ms, one.text.decode()) for one in sorted(found, key=lambda one: one.position)
    )
    print_lines(lines, sys.stdout)
    return 0


def replay(given: argparse.Namespace) -> int:
    """Print what the model of a log is; return 0."""
    limits, log = limits_of(given), dumps.read_file(given.log)
    with _naming(given.log):
        model = models.replay_dump(log, limits=limits, last=given.last)
    began = "event 1" if log.snapshot is None else f"the snapshot at {log.snapshot.position}"
    agreed = models.snapshot_agrees(log, limits=limits)
    origin = f"{began}, {agreed}" if agreed else began
    description = {"bandit": log.bandit, "replayed from": origin, **models.describe(model)}
    print_lines((f"{name:{_WIDTH}}{value}" for name, value in description.items()), sys.stdout)
    return 0


def diff(given: argparse.Namespace) -> int:
    """Print how two logs and their models differ; return 0 when they do not, else 1."""
    limits, (one, other) = limits_of(given), [dumps.read_file(path) for path in given.logs]
    ends = _last(one), _last(other)
    last = min(ends) if given.last is None else given.last
    replayed = []
    for path, log in zip(given.logs, (one, other), strict=True):
        with _naming(path):
            replayed.append(models.replay_dump(log, limits=limits, last=last))
    found = [*_differing_events(one, other, last=last), *_differing_parts(*replayed)]
    if given.last is None and ends[0] != ends[1]:
        found.append(f"one log ends at {ends[0]}, the other at {ends[1]}")
    print_lines(found or [f"no difference up to {last}"], sys.stdout)
    return 1 if found else 0


def evaluate(given: argparse.Namespace) -> int:
    """Print what other policies would have earned on a log's requests; return 0."""
    under, log = challengers.settings_under(given.challengers), dumps.read_file(given.log)
    with _naming(given.log):
        read = slates.read_slates(log)
        played = challengers.play_challengers(log, under, limits=limits_of(given))
    ruled = None if read.ruled is None else _ask_policies(given, read.ruled.asked, played)
    asked = _ask_policies(given, read.asked, played)
    policies.check_policies([asked] if ruled is None else [asked, ruled])
    print_lines([log.bandit, *values.describe(read, asked, ruled or [], played)], sys.stdout)
    return 0


def _ask_policies(
    given: argparse.Namespace, requests: AskedRequests, played: Sequence[Challenger]
) -> list[AskedPolicy]:
    return [
        *(policies.fixed_policy(requests, text.split(",")) for text in given.slates),
        *(policies.policy_of_file(requests, path) for path in given.files),
        *(policies.policy_of_function(requests, name) for name in given.functions),
        *(one.policy(requests) for one in played),
    ]


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in the error that says what is wrong with the log in it."""
    try:
        yield
    except CorruptDataError as error:
        raise CorruptDataError(f"{path.name}: {error}") from error


def _differing_events(one: Dump, other: Dump, *, last: int) -> Iterable[str]:
    """Yield the first position up to `last` that both logs hold and that holds different events."""
    theirs = {logged.position: logged for logged in other.events}
    for logged in one.events:
        if logged.position <= last and logged != theirs.get(logged.position, logged):
            yield f"event {logged.position} is the first that differs"
            yield f"  {_describe_event(logged)}"
            yield f"  {_describe_event(theirs[logged.position])}"
            return


def _describe_event(logged: LoggedEvent) -> str:
    return f"at {logged.at_ms} ms: {encode_event(logged.event).decode()}"


def _differing_parts(mine: Model, theirs: Model) -> Iterable[str]:
    """Yield what differs in two models."""
    described = models.describe(theirs)
    for name, value in models.describe(mine).items():
        if value != described[name]:
            yield f"{name:{_WIDTH}}{value} | {described[name]}"
    largest = models.apart(mine, theirs)
    if largest is None:
        yield "predictions can't be compared: the bandits have other sizes"
    elif any(largest):
        yield f"{'means':{_WIDTH}}differ by up to {largest.means:.3g} standard deviations of the prior"
        yield f"{'standard deviations':{_WIDTH}}differ by up to {largest.deviations:.3g} of the prior's"


def _last(log: Dump) -> int:
    """Return the last position that a log comes to; 0 for an empty one."""
    if log.events:
        return log.events[-1].position
    return 0 if log.snapshot is None else log.snapshot.position


def limits_of(given: argparse.Namespace) -> Limits:
    """Return the limits that a worker with the same settings has: another model comes of others."""
    chosen = settings.load(given, os.environ)
    budget = MemoryBudget(model_bytes=chosen.bandit_memory_mib * MIB)
    return budget.limits()


async def _find_events(
    chosen: Settings, url: str, name: BanditName, given: argparse.Namespace
) -> tuple[list[EventText], int]:
    """Return the events that have a name, and how many events can't be read."""
    async with _connected(chosen, url) as store:
        if given.group_key is not None:
            key = group_key(given.group_key)
        elif given.recommendation_id is not None:
            key = recommendation_key(given.recommendation_id)
        else:
            key = recommendation_key(recommendation_id_of((await store.get_bandit(name)).incarnation, given.request_id))
        logs = _whole_logs(chosen, store)
        found = [event async for event in logs.find(name, key)]
        return found, 0 if found else (await logs.find_reach(name)).missing_events


async def _write_dump(chosen: Settings, url: str, name: BanditName, *, last: int | None, path: Path | None) -> None:
    """Write the lines of a log to a file, or to standard output; no file is begun for a log that can't be read."""
    async with _connected(chosen, url) as store:
        parts = dumps.read_parts(_whole_logs(chosen, store), store, name, last=last)
        head = await anext(parts)
        with _opened(path) as file:
            print_lines(head, file)
            async for part in parts:
                if not print_lines(part, file):
                    return


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield in_utf8(sys.stdout)
        return
    with write_whole(path) as draft, draft.open("w", encoding="utf-8") as file:
        yield file


def _whole_logs(chosen: Settings, store: RedisStore) -> WholeLogs:
    folder = chosen.cold_log_dir
    if folder is not None and not folder.is_dir():
        raise ConfigurationError(f"--cold-log-dir: there is no folder {folder}")
    return WholeLogs(store, None if folder is None else ColdLog(folder))


@asynccontextmanager
async def _connected(chosen: Settings, url: str) -> AsyncIterator[RedisStore]:
    patience = max(chosen.store_timeout_seconds, _PATIENCE_SECONDS)
    store = await RedisStore.connect(url, prefix=chosen.key_prefix, timeout=patience)
    try:
        yield store
    finally:
        await store.close()
