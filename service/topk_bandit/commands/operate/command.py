"""What the commands do that ask a service."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from topk_bandit.client import ClientError
from topk_bandit.commands.connection import NOBODY, connect
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.archives import archive_lines, examine, save, send, write
from topk_bandit.commands.operate.backups import backup, progress, restore
from topk_bandit.commands.operate.events import export_log, line, tail_log
from topk_bandit.commands.operate.explanation import tell
from topk_bandit.commands.operate.making import create_bandit, create_items, delete_items, get_item
from topk_bandit.commands.operate.overviews import HISTORY, OVERVIEW, history_row, overview_row
from topk_bandit.commands.printing import print_lines
from topk_bandit.commands.tables import facts, flatten, table
from topk_bandit.domain.errors import CorruptDataError, InvalidArgumentError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from topk_bandit.client import CallStatus, StoreStatus, Verification

__all__ = ["run"]


def run(given: argparse.Namespace) -> int:
    """Ask, and print what is answered; return 0, or 1 with one line that says why not."""
    try:
        print_lines(_WORDS[given.word](given), sys.stdout, at_once=given.word in _AT_ONCE)
    except ClientError as error:
        print(f"topk-bandit: {error}", file=sys.stderr)  # noqa: T201 - what a person at a terminal reads
        return 1
    return 0


def _explain(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        return list(tell(client.explain(name.bandit, given.recommendation)))


def _list_tenants(given: argparse.Namespace) -> Iterable[str]:
    with connect(given, NOBODY) as client:
        return list(client.list_tenants())


def _tenant_stats(given: argparse.Namespace) -> Iterable[str]:
    with connect(given, given.tenant) as client:
        told = asdict(client.tenant_stats())
    quotas = [(one["quota"], one["used"], one["limit"]) for one in told.pop("quotas")]
    return [*facts(told.items()), "", *table(("quota", "used", "limit"), quotas)]


def _status(given: argparse.Namespace) -> Iterable[str]:
    with connect(given, NOBODY) as client:
        told = client.service_status()
    since, store = f"{told.start_time:%Y-%m-%d %H:%M:%S}", told.store
    yield from facts((("service", told.version), ("worker", told.worker), ("since", since), *_store_facts(store)))
    rows = [(one.method, one.call_count, one.failed_count, *_milliseconds(one)) for one in told.calls]
    yield ""
    yield f"calls of the last {told.window.total_seconds():.0f} s, in ms"
    yield from table(("method", "calls", "failed", "median", "90 %", "99 %"), rows)


def _store_facts(store: StoreStatus | None) -> Iterable[tuple[str, str]]:
    if store is None:
        return [("store", "away")]
    used, limit = (f"{count / 2**20:,.1f} MiB" for count in (store.memory_bytes, store.memory_limit_bytes))
    return [
        ("store", f"{store.server} {store.version}, {store.mode}"),
        ("durability", store.durability),
        ("store memory", f"{used} of {limit}"),
        ("store problems", " ".join(store.problems) or "none"),
    ]


def _milliseconds(call: CallStatus) -> Iterable[str]:
    return (f"{1e3 * seconds:.1f}" for seconds in (call.median_seconds, call.p90_seconds, call.p99_seconds))


def _list_bandits(given: argparse.Namespace) -> Iterable[str]:
    with connect(given, given.tenant or NOBODY) as client:
        found = client.list_bandit_overviews(every_tenant=given.tenant is None, containing=given.containing)
        return list(table(OVERVIEW, map(overview_row, found)))


def _get_bandit(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        return list(facts(flatten(asdict(client.get_bandit(name.bandit)))))


def _bandit_stats(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        return list(facts(flatten(asdict(client.stats(name.bandit)))))


def _bandit_history(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    if given.last < 1:
        raise InvalidArgumentError("--last", f"expected at least 1, got {given.last}")
    with connect(given, name.tenant) as client:
        return list(table(HISTORY, map(history_row, client.history(name.bandit)[-given.last :])))


def _replay(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        found = client.verify(name.bandit)
    began = f"the snapshot at {found.replayed_from}" if found.replayed_from else "event 1"
    yield from facts((("replayed from", began), ("up to", found.model_version), *_digests(found)))
    if not found.agrees and given.verify:
        raise CorruptDataError(f"the model that serves is not the fold of its log: their {found.difference} differs")


def _digests(found: Verification) -> Iterable[tuple[str, str]]:
    """Return the digests of the model and of the replay, once where they are equal."""
    for name in ("log_digest", "posterior_digest", "arithmetic"):
        live, replayed = getattr(found, name), getattr(found, f"replayed_{name}")
        yield name.replace("_", " "), live if live == replayed else f"{live} | {replayed}"
    yield "agrees", "yes" if found.agrees else f"no: the {found.difference} differs"


def _export_events(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        path = given.parquet or given.out
        if given.first is not None:
            lines = map(line, export_log(client, name.bandit, first=given.first))
            yield from lines if path is None else write(path, lines, as_parquet=path is given.parquet)
        elif path is None:
            yield from archive_lines(client, name.bandit)
        else:
            save(lambda: archive_lines(client, name.bandit), path, as_parquet=path is given.parquet)


def _import_events(given: argparse.Namespace) -> Iterable[str]:
    archive = examine(given.file)
    name = bandit_named(given.bandit or archive.name)
    with connect(given, name.tenant) as client, progress() as bar:
        task = bar.add_task(f"{name.tenant}/{name.bandit}", total=archive.lines)
        position = send(
            client.import_events, name.bandit, archive, told=lambda lines: bar.update(task, completed=lines)
        )
    return [f"imported {name.tenant}/{name.bandit}: {position} events"]


def _tail_events(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        yield from tail_log(client, name.bandit, first=given.first, count=given.count)


def _skip_event(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    if not given.yes:
        raise InvalidArgumentError("--yes", f"what event {given.position} of {given.bandit} told is not learned then")
    with connect(given, name.tenant) as client:
        stands = client.skip_event(name.bandit, given.position, reason=given.reason)
    told = f"passed over event {given.position}: learned up to {stands.model_version} of {stands.log_position} events"
    return [f"{told}; {stands.problem}" if stands.problem else told]


def _delete_bandit(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    if not given.yes:
        raise InvalidArgumentError("--yes", f"{given.bandit} and all that it learned is gone for good then")
    with connect(given, name.tenant) as client:
        client.delete_bandit(name.bandit)
    return [f"deleted {given.bandit}"]


def _reset_bandit(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    if not given.yes:
        raise InvalidArgumentError("--yes", f"{given.bandit} forgets all that it learned from rewards then")
    with connect(given, name.tenant) as client:
        client.reset_bandit(name.bandit)
        forgotten = client.stats(name.bandit).forgotten_count
    return [f"reset {given.bandit}: {forgotten} rewards are forgotten"]


def _list_items(given: argparse.Namespace) -> Iterable[str]:
    name = bandit_named(given.bandit)
    with connect(given, name.tenant) as client:
        rows = [
            (one.item_id, "yes" if one.available else "no", _features(one.features))
            for one in client.items(name.bandit)
        ]
    return list(table(("item", "available", "features"), rows))


def _features(features: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in features.items())


_AT_ONCE = frozenset({"backup", "events tail", "restore"})
"""Words whose lines are printed one after the other as they come."""


_WORDS: Mapping[str, Callable[[argparse.Namespace], Iterable[str]]] = {
    "explain": _explain,
    "status": _status,
    "tenants list": _list_tenants,
    "tenants stats": _tenant_stats,
    "bandits list": _list_bandits,
    "bandits create": create_bandit,
    "bandits get": _get_bandit,
    "bandits stats": _bandit_stats,
    "bandits history": _bandit_history,
    "bandits delete": _delete_bandit,
    "bandits reset": _reset_bandit,
    "items create": create_items,
    "items delete": delete_items,
    "items get": get_item,
    "items list": _list_items,
    "backup": backup,
    "events export": _export_events,
    "events import": _import_events,
    "events skip": _skip_event,
    "events tail": _tail_events,
    "replay": _replay,
    "restore": restore,
}
