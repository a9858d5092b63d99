"""What a service answers that an operator looks at: as lines for a person, or as JSON for a program."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from topk_bandit.commands.connection import NOBODY, connect
from topk_bandit.commands.names import bandit_named
from topk_bandit.commands.operate.explanation import explanation_lines
from topk_bandit.commands.operate.making import show_settings
from topk_bandit.commands.operate.overviews import HISTORY, OVERVIEW, history_row, overview_row
from topk_bandit.commands.printing import print_lines
from topk_bandit.commands.tables import facts, flatten, table
from topk_bandit.domain.errors import CorruptDataError, NotFoundError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topk_bandit.client import (
        BanditOverview,
        BanditStats,
        CallStatus,
        Client,
        Explanation,
        HistoryPoint,
        Item,
        ServiceStatus,
        StoreStatus,
        TenantStats,
        Verification,
    )

__all__ = ["ANSWERS", "Answer", "print_answer"]


class Answer(NamedTuple):
    """How a command asks, how the answer becomes lines for a person, and what raises where it is a failure."""

    ask: Callable[[argparse.Namespace], Any]
    lines: Callable[[Any], Iterable[str]]
    check: Callable[[argparse.Namespace, Any], None] = lambda _, __: None


def print_answer(answer: Answer, given: argparse.Namespace) -> None:
    """Ask, and print the answer."""
    value = answer.ask(given)
    print_lines(_as_json(value) if given.json else answer.lines(value), sys.stdout)
    answer.check(given, value)


def _as_json(value: object) -> Iterable[str]:
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain).split("\n")


def _plain(value: Any) -> object:  # noqa: ANN401 - whatever the client returns
    """Return what JSON has for a value: times as RFC 3339 has them, how long something takes in seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.name.lower()
    return dict(value) if hasattr(value, "keys") else str(value)


def _of_bandit(ask: Callable[[Client, str, argparse.Namespace], Any]) -> Callable[[argparse.Namespace], Any]:
    """Return what asks about the bandit that is named."""

    def ask_about(given: argparse.Namespace) -> Any:  # noqa: ANN401 - whatever the client returns
        name = bandit_named(given.bandit)
        with connect(given, name.tenant) as client:
            return ask(client, name.bandit, given)

    return ask_about


def _tenants(given: argparse.Namespace) -> Sequence[str]:
    with connect(given, NOBODY) as client:
        return list(client.list_tenants())


def _tenant_stats(given: argparse.Namespace) -> TenantStats:
    with connect(given, given.tenant) as client:
        return client.tenant_stats()


def _tenant_lines(stats: TenantStats) -> Iterable[str]:
    fields = asdict(stats)
    quotas = [(one["quota"], one["used"], one["limit"]) for one in fields.pop("quotas")]
    return [*facts(fields.items()), "", *table(("quota", "used", "limit"), quotas)]


def _status(given: argparse.Namespace) -> ServiceStatus:
    with connect(given, NOBODY) as client:
        return client.service_status()


def _status_lines(status: ServiceStatus) -> Iterable[str]:
    since, store = f"{status.start_time:%Y-%m-%d %H:%M:%S}", status.store
    yield from facts((("service", status.version), ("worker", status.worker), ("since", since), *_store_facts(store)))
    rows = [(one.method, one.call_count, one.failed_count, *_milliseconds(one)) for one in status.calls]
    yield ""
    yield f"calls of the last {status.window.total_seconds():.0f} s, in ms"
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


def _bandits(given: argparse.Namespace) -> Sequence[BanditOverview]:
    with connect(given, given.tenant or NOBODY) as client:
        return list(client.list_bandit_overviews(every_tenant=given.tenant is None, containing=given.containing))


def _stats_lines(stats: BanditStats) -> Iterable[str]:
    fields = asdict(stats)
    fields["rules"] = {str(number): rule for number, rule in enumerate(stats.rules, 1)} or None
    points = [(one["delay"], f"{one['share']:.1%}") for one in fields["reward_times"].pop("points")]
    yield from facts(flatten(fields))
    if points:
        yield from ("", *table(("age of a slate", "of its reward has come"), points))


def _item_lines(value: Item) -> Iterable[str]:
    return facts(flatten(asdict(value)))


def _history(client: Client, bandit: str, given: argparse.Namespace) -> Sequence[HistoryPoint]:
    return client.history(bandit)[-given.last :]


def _item(client: Client, bandit: str, given: argparse.Namespace) -> Item:
    found = next((one for one in client.items(bandit) if one.item_id == given.item), None)
    if found is None:
        raise NotFoundError(f"item {given.item} of {given.bandit}")
    return found


def _items_lines(items: Iterable[Item]) -> Iterable[str]:
    rows = [(one.item_id, "yes" if one.available else "no", _features(one.features)) for one in items]
    return table(("item", "available", "features"), rows)


def _features(features: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in features.items())


def _replay_lines(found: Verification) -> Iterable[str]:
    began = f"the snapshot at {found.replayed_from}" if found.replayed_from else "event 1"
    return facts((("replayed from", began), ("up to", found.model_version), *_digests(found)))


def _check_replay(given: argparse.Namespace, found: Verification) -> None:
    if not found.agrees and given.verify:
        raise CorruptDataError(f"the model that serves is not the fold of its log: their {found.difference} differs")


def _digests(found: Verification) -> Iterable[tuple[str, str]]:
    """Return the digests of the model and of the replay, once where they are equal."""
    for name in ("log_digest", "posterior_digest", "arithmetic"):
        live, replayed = getattr(found, name), getattr(found, f"replayed_{name}")
        yield name.replace("_", " "), live if live == replayed else f"{live} | {replayed}"
    yield "agrees", "yes" if found.agrees else f"no: the {found.difference} differs"


def _explanation(client: Client, bandit: str, given: argparse.Namespace) -> Explanation:
    return client.explain(bandit, given.recommendation, absent=given.absent)


ANSWERS: Mapping[str, Answer] = {
    "explain": Answer(_of_bandit(_explanation), explanation_lines),
    "status": Answer(_status, _status_lines),
    "tenants list": Answer(_tenants, lambda tenants: tenants),
    "tenants stats": Answer(_tenant_stats, _tenant_lines),
    "bandits list": Answer(_bandits, lambda found: table(OVERVIEW, map(overview_row, found))),
    "bandits get": Answer(_of_bandit(lambda client, bandit, _: client.get_bandit(bandit)), show_settings),
    "bandits stats": Answer(_of_bandit(lambda client, bandit, _: client.stats(bandit)), _stats_lines),
    "bandits history": Answer(_of_bandit(_history), lambda points: table(HISTORY, map(history_row, points))),
    "items get": Answer(_of_bandit(_item), _item_lines),
    "items list": Answer(_of_bandit(lambda client, bandit, _: list(client.items(bandit))), _items_lines),
    "replay": Answer(_of_bandit(lambda client, bandit, _: client.verify(bandit)), _replay_lines, _check_replay),
}
"""By the words of a command."""
