"""Between the wire and the answers for operators: `topk_bandit.domain.operators`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from google.protobuf.duration_pb2 import Duration

from topk_bandit.bandits.contents import STAGES, ContentsCursor
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Features
from topk_bandit.domain.operators import ModelSource
from topk_bandit.rpc import fields
from topk_bandit.rpc.converters import PageRequest, context_from_proto, recommendation_to_proto
from topk_bandit.rpc.features import features_to_proto
from topk_bandit.rpc.line_imports import lines_sent
from topk_bandit.v1 import operator_service_pb2 as pb
from topk_bandit.wire.forms import timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import Recommendation
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.operators import (
        BanditOverview,
        CallStatus,
        EventPage,
        Explanation,
        HistoryPoint,
        ModelGlance,
        RankedSlate,
        Reasons,
        StoreStatus,
        TenantStats,
        Verification,
        WorkerStatus,
    )
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
    "tenant_stats_to_proto",
    "tenants_to_proto",
    "top_slates_request",
    "top_slates_to_proto",
    "verification_to_proto",
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

_SOURCES = {
    ModelSource.LIVE: pb.MODEL_SOURCE_LIVE,
    ModelSource.REPLAYED: pb.MODEL_SOURCE_REPLAYED,
    ModelSource.TRIMMED: pb.MODEL_SOURCE_TRIMMED,
}


def explanation_request(request: pb.ExplainRecommendationRequest) -> tuple[BanditName, str]:
    """Return which recommendation of whom an ExplainRecommendation is about."""
    name = fields.bandit_name("bandit", request.bandit)
    return name, fields.opaque_id("recommendation_id", request.recommendation_id)


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
        model_source=_SOURCES[explanation.source],
        reasons=None if explanation.reasons is None else _reasons(explanation.reasons),
    )


def _own_slate(given: Recommendation) -> tuple[str, ...]:
    """Return what the bandit itself would have shown, where something else was."""
    return given.best_slate if given.shadow is None else given.shadow.slate


def _reasons(reasons: Reasons) -> pb.Reasons:
    items = (
        pb.ItemPart(item_id=one.item_id, position=one.position, own=one.own, content=one.content, prior=one.prior)
        for one in reasons.items
    )
    pairs = (
        pb.PairPart(first_item_id=one.first_item_id, second_item_id=one.second_item_id, value=one.value)
        for one in reasons.pairs
    )
    return pb.Reasons(
        shown=_write_ranked(reasons.shown),
        offset=reasons.offset,
        context_part=reasons.context,
        items=items,
        pairs=pairs,
        beta=reasons.beta,
        chosen_again=reasons.chosen_again,
        next_best=map(_write_ranked, reasons.next_best),
    )


def _write_ranked(slate: RankedSlate) -> pb.RankedSlate:
    return pb.RankedSlate(
        item_ids=slate.slate,
        mean=slate.mean,
        standard_deviation=slate.standard_deviation,
        upper_bound=slate.upper_bound,
        score=slate.score,
    )


def top_slates_request(request: pb.ListTopSlatesRequest) -> tuple[BanditName, Context, int]:
    """Return whose best slates a ListTopSlates asks for, at which context, and how many."""
    name = fields.bandit_name("bandit", request.bandit)
    limit = fields.integer("limit", request.limit, low=0, high=_MOST_SLATES)
    return name, context_from_proto("", request), limit or _DEFAULT_SLATES


def top_slates_to_proto(version: int, slates: Sequence[RankedSlate]) -> pb.ListTopSlatesResponse:
    """Return the reply to a ListTopSlates."""
    return pb.ListTopSlatesResponse(slates=map(_write_ranked, slates), model_version=version)


def tenant_page(request: pb.ListTenantsRequest) -> PageRequest:
    """Return which tenants a ListTenants asks for."""
    return PageRequest(after=fields.page_token("page_token", request.page_token), size=_size(request.page_size))


def tenants_to_proto(tenants: Sequence[str], page: PageRequest) -> pb.ListTenantsResponse:
    """Return a page of tenants; `tenants` holds one more than the page if there is one."""
    shown = tenants[: page.size]
    token = fields.to_page_token(shown[-1]) if len(tenants) > page.size else ""
    return pb.ListTenantsResponse(tenants=(f"tenants/{tenant}" for tenant in shown), next_page_token=token)


def tenant_stats_to_proto(stats: TenantStats) -> pb.GetTenantStatsResponse:
    """Return what a tenant uses."""
    return pb.GetTenantStatsResponse(
        bandit_count=stats.bandits,
        log_event_count=stats.log_events,
        pending_count=stats.pending,
        late_reward_count=stats.late_rewards,
        model_count=stats.models,
        model_memory_bytes=stats.memory_bytes,
        recommendation_count=stats.recommendations,
        observation_count=stats.observations,
        quotas=(pb.QuotaUse(quota=one.quota, limit=one.limit, used=one.used) for one in stats.quotas),
    )


def add_models(stats: pb.GetTenantStatsResponse, other: pb.GetTenantStatsResponse) -> None:
    """Add what the models of another worker come to."""
    stats.model_count += other.model_count
    stats.model_memory_bytes += other.model_memory_bytes
    stats.recommendation_count += other.recommendation_count
    stats.observation_count += other.observation_count


def service_status_to_proto(worker: WorkerStatus, store: StoreStatus | None) -> pb.GetServiceStatusResponse:
    """Return how a worker and the store are."""
    window = Duration()
    window.FromMilliseconds(round(worker.window_seconds * 1e3))
    return pb.GetServiceStatusResponse(
        version=worker.version,
        worker=worker.worker,
        start_time=timestamp(worker.start_ms),
        window=window,
        calls=map(_call_status, worker.calls),
        store=None if store is None else _store_status(store),
    )


def _call_status(call: CallStatus) -> pb.CallStatus:
    return pb.CallStatus(
        method=call.method,
        call_count=call.calls,
        failed_count=call.failed,
        median_seconds=call.median,
        p90_seconds=call.p90,
        p99_seconds=call.p99,
    )


def _store_status(store: StoreStatus) -> pb.StoreStatus:
    return pb.StoreStatus(
        server=store.server,
        version=store.version,
        mode=store.mode,
        durability=store.durability,
        problems=store.problems,
        memory_bytes=store.memory_bytes,
        memory_limit_bytes=store.memory_limit_bytes,
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
    return pb.ListBanditOverviewsResponse(overviews=map(_overview, overviews), next_page_token=token)


def take_glances(page: pb.ListBanditOverviewsResponse, other: pb.ListBanditOverviewsResponse) -> None:
    """Take over the glances of another worker's models, where they know more of the log than those of the page."""
    known = {overview.name: overview.glance for overview in other.overviews if overview.HasField("glance")}
    for overview in page.overviews:
        glance = known.get(overview.name)
        if glance is None or (overview.HasField("glance") and overview.glance.model_version >= glance.model_version):
            continue
        overview.glance.CopyFrom(glance)


def _overview(overview: BanditOverview) -> pb.BanditOverview:
    return pb.BanditOverview(
        name=str(overview.name),
        create_time=timestamp(overview.created_ms),
        log_position=overview.log_position,
        snapshot_position=overview.snapshot_position,
        pending_count=overview.pending,
        late_reward_count=overview.late_rewards,
        glance=None if overview.glance is None else _glance(overview.glance),
    )


def _glance(glance: ModelGlance) -> pb.ModelGlance:
    return pb.ModelGlance(
        model_version=glance.model_version,
        recommendation_count=glance.recommendations,
        observation_count=glance.observations,
        explored_count=glance.explored,
        mean_reward=glance.mean_reward,
        regret_bound_sum=glance.regret_bound_sum,
        estimated_regret_sum=glance.estimated_regret_sum,
        item_count=glance.items,
        memory_bytes=glance.memory_bytes,
    )


def history_to_proto(points: Sequence[HistoryPoint]) -> pb.GetBanditHistoryResponse:
    """Return how a bandit did over its life."""
    before = (None, *points[:-1])
    return pb.GetBanditHistoryResponse(points=map(_point, points, before))


def _point(point: HistoryPoint, before: HistoryPoint | None) -> pb.HistoryPoint:
    def find_growth(name: str) -> float:
        return float(getattr(point, name) - (0 if before is None else getattr(before, name)))

    return pb.HistoryPoint(
        start_time=timestamp(point.start_ms),
        end_time=timestamp(point.end_ms),
        recommendation_count=point.recommendations,
        explored_count=point.explored,
        rewarded_count=point.rewarded,
        expired_count=point.expired,
        observation_count=point.observations,
        reward_sum=point.reward_sum,
        regret_bound_sum=point.regret_bound_sum,
        estimated_regret_sum=point.estimated_regret_sum,
        mean_reward=_ratio(find_growth("reward_sum"), find_growth("observations")),
        explored_share=_ratio(find_growth("explored"), find_growth("recommendations")),
        join_rate=_ratio(find_growth("rewarded"), find_growth("rewarded") + find_growth("expired")),
    )


def _ratio(part: float, whole: float) -> float | None:
    # A voided reward can leave fewer than there were.
    return part / whole if whole > 0.0 else None


def verification_to_proto(verification: Verification) -> pb.VerifyBanditResponse:
    """Return whether a model is the fold of its log."""
    return pb.VerifyBanditResponse(
        agrees=not verification.difference,
        difference=verification.difference,
        model_version=verification.version,
        replayed_from=verification.replayed_from,
        log_digest=verification.log_digest,
        posterior_digest=verification.posterior_digest,
        arithmetic=verification.arithmetic,
        replayed_log_digest=verification.replayed_log_digest,
        replayed_posterior_digest=verification.replayed_posterior_digest,
        replayed_arithmetic=verification.replayed_arithmetic,
    )


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
