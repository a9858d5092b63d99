"""Between the wire and the answers for operators: `topk_bandit.domain.operators`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from topk_bandit.bandits.contents import STAGES, ContentsCursor
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Features
from topk_bandit.rpc import fields
from topk_bandit.rpc.converters import PageRequest, context_from_proto, explained_items, recommendation_to_proto
from topk_bandit.rpc.features import features_to_proto
from topk_bandit.rpc.line_imports import lines_sent
from topk_bandit.rpc.rules import rules_from_proto
from topk_bandit.v1 import operator_service_pb2 as pb
from topk_bandit.wire.forms import duration, timestamp
from topk_bandit.wire.operators import CALL, HISTORY_POINT, OVERVIEW, REASONS, SOURCES, STORE
from topk_bandit.wire.rules import ABSENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.features import Context
    from topk_bandit.domain.operators import (
        BanditOverview,
        EventPage,
        Explanation,
        HistoryPoint,
        StoreStatus,
        WorkerStatus,
    )
    from topk_bandit.domain.rules import SlateRule
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.store.line_imports import Lines

__all__ = [
    "add_models",
    "event_page",
    "events_to_proto",
    "explanation_request",
    "explanation_to_proto",
    "history_to_proto",
    "lines_request",
    "overview_page",
    "overviews_to_proto",
    "service_status_to_proto",
    "skip_request",
    "state_page",
    "state_to_proto",
    "take_glances",
    "tenant_page",
    "tenants_to_proto",
    "top_slates_request",
]

_DEFAULT_SLATES = 10
_MOST_SLATES = 100
_DEFAULT_ENTRIES = 100
_MOST_ENTRIES = 1000
_EVENTS = 1000
_EVENTS_AT_ONCE = 100
_DIGITS = 18
_LAST_POSITION = 2**63 - 1
_REASON_BYTES = 512
"""The largest start_position that a message can hold; stores take no larger ones."""


def explanation_request(request: pb.ExplainRecommendationRequest) -> tuple[BanditName, str, tuple[str, ...]]:
    """Return which recommendation of whom an ExplainRecommendation is about, and which items it asks about."""
    name = fields.bandit_name("bandit", request.bandit)
    return name, fields.opaque_id("recommendation_id", request.recommendation_id), explained_items(request)


def explanation_to_proto(explanation: Explanation) -> pb.ExplainRecommendationResponse:
    """Return the reply to an ExplainRecommendation."""
    request, context = explanation.request, explanation.request.context
    return pb.ExplainRecommendationResponse(
        request_id=request.request_id,
        context=() if isinstance(context, Features) else context,
        features=features_to_proto(context) if isinstance(context, Features) else None,
        candidate_item_ids=request.candidates or (),
        recommendation=recommendation_to_proto(explanation.recommendation),
        best_item_ids=_own_slate(explanation.recommendation),
        log_position=explanation.position,
        recommend_time=timestamp(explanation.at_ms),
        model_source=SOURCES.write(explanation.source),
        reasons=None if explanation.reasons is None else REASONS.write(explanation.reasons),
        absent_items=map(ABSENCE.write, explanation.absent),
        reasons_problem=explanation.problem,
    )


def _own_slate(given: Recommendation) -> tuple[str, ...]:
    """Return what the bandit itself would have shown, where something else was."""
    return given.best_slate if given.shadow is None else given.shadow.slate


def top_slates_request(
    request: pb.ListTopSlatesRequest,
) -> tuple[BanditName, Context, int, tuple[SlateRule, ...] | None]:
    """Return whose best slates a ListTopSlates asks for, at which context, how many, and under which rules."""
    name = fields.bandit_name("bandit", request.bandit)
    limit = fields.integer("limit", request.limit, low=0, high=_MOST_SLATES)
    proposed = rules_from_proto("proposed.rules", request.proposed.rules) if request.HasField("proposed") else None
    return name, context_from_proto("", request), limit or _DEFAULT_SLATES, proposed


def tenant_page(request: pb.ListTenantsRequest) -> PageRequest:
    """Return which tenants a ListTenants asks for."""
    return PageRequest(after=fields.page_token("page_token", request.page_token), size=_size(request.page_size))


def tenants_to_proto(tenants: Sequence[str], page: PageRequest) -> pb.ListTenantsResponse:
    """Return a page of tenants; `tenants` holds one more than the page if there is one."""
    shown = tenants[: page.size]
    token = fields.to_page_token(shown[-1]) if len(tenants) > page.size else ""
    return pb.ListTenantsResponse(tenants=(f"tenants/{tenant}" for tenant in shown), next_page_token=token)


def add_models(stats: pb.GetTenantStatsResponse, other: pb.GetTenantStatsResponse) -> None:
    """Add what the models of another worker come to."""
    stats.model_count += other.model_count
    stats.model_memory_bytes += other.model_memory_bytes
    stats.recommendation_count += other.recommendation_count
    stats.observation_count += other.observation_count


def service_status_to_proto(worker: WorkerStatus, store: StoreStatus | None) -> pb.GetServiceStatusResponse:
    """Return how a worker and the store are."""
    return pb.GetServiceStatusResponse(
        version=worker.version,
        worker=worker.worker,
        start_time=timestamp(worker.start_ms),
        window=duration(round(worker.window_seconds * 1e3)),
        calls=map(CALL.write, worker.calls),
        store=None if store is None else STORE.write(store),
    )


def overview_page(request: pb.ListBanditOverviewsRequest) -> tuple[str | None, BanditName | None, int, str]:
    """Return whose bandits a ListBanditOverviews asks for, after which, how many to look at, and what they contain."""
    tenant = fields.tenant_or_all("parent", request.parent)
    token = fields.page_token("page_token", request.page_token)
    containing = fields.opaque_id("containing", request.containing) if request.containing else ""
    return tenant, _after(token, tenant), _size(request.page_size), containing


def _after(token: str, tenant: str | None) -> BanditName | None:
    """Return the bandit after which a page begins; None for the first page."""
    if not token:
        return None
    parts = token.split("/")
    if len(parts) != 2 or tenant not in {None, parts[0]}:
        raise fields.unknown_token("page_token", fields.to_page_token(token))
    return BanditName(*parts)


def _size(asked: int) -> int:
    return fields.page_size("page_size", asked, default=_DEFAULT_ENTRIES, most=_MOST_ENTRIES)


def overviews_to_proto(overviews: Sequence[BanditOverview], last: BanditName | None) -> pb.ListBanditOverviewsResponse:
    """Return a page of bandits; `last` is the last one that was looked at, None at the end."""
    token = "" if last is None else fields.to_page_token(f"{last.tenant}/{last.bandit}")
    return pb.ListBanditOverviewsResponse(overviews=map(OVERVIEW.write, overviews), next_page_token=token)


def take_glances(page: pb.ListBanditOverviewsResponse, other: pb.ListBanditOverviewsResponse) -> None:
    """Take over the glances of another worker's models, where they know more of the log than those of the page."""
    known = {overview.name: overview.glance for overview in other.overviews if overview.HasField("glance")}
    for overview in page.overviews:
        glance = known.get(overview.name)
        if glance is None or (overview.HasField("glance") and overview.glance.model_version >= glance.model_version):
            continue
        overview.glance.CopyFrom(glance)


def history_to_proto(points: Sequence[HistoryPoint]) -> pb.GetBanditHistoryResponse:
    """Return how a bandit did over its life."""
    before = (None, *points[:-1])
    return pb.GetBanditHistoryResponse(points=map(_point, points, before))


def _point(point: HistoryPoint, before: HistoryPoint | None) -> pb.HistoryPoint:
    def find_growth(name: str) -> float:
        return float(getattr(point, name) - (0 if before is None else getattr(before, name)))

    return HISTORY_POINT.write(
        point,
        mean_reward=_ratio(find_growth("reward_sum"), find_growth("observations")),
        explored_share=_ratio(find_growth("explored"), find_growth("recommendations")),
        join_rate=_ratio(find_growth("rewarded"), find_growth("rewarded") + find_growth("expired")),
    )


def _ratio(part: float, whole: float) -> float | None:
    # A voided reward can leave fewer than there were.
    return part / whole if whole > 0.0 else None


def event_page(request: pb.ExportEventsRequest) -> tuple[BanditName, int, int, str]:
    """Return whose events an ExportEvents asks for, from which position on, how many, and of which incarnation."""
    name = fields.bandit_name("bandit", request.bandit)
    start = fields.log_position("start_position", request.start_position)
    limit = fields.page_size("page_size", request.page_size, default=_EVENTS, most=_EVENTS)
    token = fields.page_token("cursor", request.cursor)
    if not token:
        return name, start, limit, ""
    if start:
        raise InvalidArgumentError("start_position", "can't be used together with cursor: leave one of them out")
    position, _, incarnation = token.partition("/")
    known = position.isascii() and position.isdigit() and 1 <= int(position) <= _LAST_POSITION and incarnation
    if not known:
        raise fields.unknown_token("cursor", request.cursor)
    return name, int(position), limit, incarnation


async def events_to_proto(page: EventPage) -> pb.ExportEventsResponse:
    """Return a page of a log, made of a few events in each round of the event loop."""
    cursor = fields.to_page_token(f"{page.next_position}/{page.incarnation}")
    response = pb.ExportEventsResponse(next_cursor=cursor, log_position=page.log_position)
    # A page has a thousand of them: each is made in its place, by as few calls as can be.
    add = response.events.add
    for number, event in enumerate(page.events):
        if number and number % _EVENTS_AT_ONCE == 0:
            await asyncio.sleep(0)
        time = add(position=event.position, event_json=event.text.decode()).time
        time.seconds, millis = divmod(event.at_ms, 1000)
        time.nanos = millis * 1_000_000
    return response


def state_page(request: pb.ExportStateRequest) -> tuple[BanditName, ContentsCursor | None]:
    """Return whose state an ExportState asks for, and from where on."""
    name, token = fields.bandit_name("bandit", request.bandit), fields.page_token("cursor", request.cursor)
    if not token:
        return name, None
    parts = token.split("/", 3)
    numbers = [part for part in parts[:1] + parts[2:3] if part.isascii() and part.isdigit() and len(part) <= _DIGITS]
    if len(parts) != 4 or len(numbers) != 2 or parts[1] not in STAGES or not parts[3]:
        raise fields.unknown_token("cursor", request.cursor)
    return name, ContentsCursor(parts[3], int(parts[0]), parts[1], int(parts[2]))


def state_to_proto(lines: Sequence[str], place: ContentsCursor | None) -> pb.ExportStateResponse:
    """Return a page of what there is of a bandit beside its log."""
    cursor = "" if place is None else f"{place.first_position}/{place.stage}/{place.at}/{place.incarnation}"
    return pb.ExportStateResponse(lines=lines, next_cursor=fields.to_page_token(cursor) if cursor else "")


def lines_request(request: pb.ImportEventsRequest) -> tuple[BanditName, Lines]:
    """Return whose lines an ImportEvents brings, and the lines."""
    return fields.bandit_name("bandit", request.bandit), lines_sent(request)


def skip_request(request: pb.SkipEventRequest) -> tuple[BanditName, int, str]:
    """Return of which bandit a SkipEvent has an event passed over, which one, and why."""
    name = fields.bandit_name("bandit", request.bandit)
    position = fields.integer("position", request.position, low=1, high=_LAST_POSITION)
    return name, position, fields.sentence("reason", request.reason, most_bytes=_REASON_BYTES)
