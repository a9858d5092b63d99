"""Each call of an operator as a value; see `topk_bandit.client.operations`."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields
from datetime import UTC
from typing import TYPE_CHECKING, Any

from topk_bandit.client.arguments import message, numbers
from topk_bandit.client.features import feature_values, features_of
from topk_bandit.client.operations import Operation, Page, recommendation_of
from topk_bandit.client.operator_values import (
    BanditOverview,
    CallStatus,
    EventPage,
    Explanation,
    ExportedEvent,
    HistoryPoint,
    ImportedLines,
    ItemPart,
    ModelGlance,
    ModelSource,
    PairPart,
    QuotaUse,
    RankedSlate,
    Reasons,
    ServiceStatus,
    SkippedEvent,
    StoreStatus,
    TenantStats,
    TopSlates,
    Verification,
)
from topk_bandit.v1 import operator_service_pb2 as pb
from topk_bandit.v1.operator_service_pb2_grpc import OperatorServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OperatorOperations"]

_SOURCES = {
    pb.MODEL_SOURCE_LIVE: ModelSource.LIVE,
    pb.MODEL_SOURCE_REPLAYED: ModelSource.REPLAYED,
    pb.MODEL_SOURCE_TRIMMED: ModelSource.TRIMMED,
}


class OperatorOperations:
    """The calls of those who operate the service, about one tenant."""

    def __init__(self, tenant: str) -> None:
        self._parent = f"tenants/{tenant}"

    def _name(self, bandit: str) -> str:
        return f"{self._parent}/bandits/{bandit}"

    def explain(self, bandit: str, recommendation_id: str) -> Operation[Explanation]:
        """Ask why a slate was what it was."""
        request = pb.ExplainRecommendationRequest(bandit=self._name(bandit), recommendation_id=recommendation_id)
        return Operation(OperatorServiceStub, "ExplainRecommendation", request, _explanation)

    def top_slates(
        self, bandit: str, context: Iterable[float], *, features: object, limit: int
    ) -> Operation[TopSlates]:
        """Ask for the best slates."""
        request = message(
            pb.ListTopSlatesRequest,
            bandit=self._name(bandit),
            context=numbers("context", context),
            features=None if features is None else feature_values(features),
            limit=limit,
        )
        return Operation(OperatorServiceStub, "ListTopSlates", request, _top_slates)

    def tenants(self, token: str) -> Operation[Page[str]]:
        """Return a page of tenants."""
        return Operation(OperatorServiceStub, "ListTenants", pb.ListTenantsRequest(page_token=token), _tenants)

    def tenant_stats(self) -> Operation[TenantStats]:
        """Ask what the tenant uses."""
        request = pb.GetTenantStatsRequest(tenant=self._parent)
        return Operation(OperatorServiceStub, "GetTenantStats", request, _tenant_stats)

    def service_status(self) -> Operation[ServiceStatus]:
        """Ask how a worker and the store are."""
        return Operation(OperatorServiceStub, "GetServiceStatus", pb.GetServiceStatusRequest(), _service_status)

    def overviews(self, token: str, *, every_tenant: bool, containing: str) -> Operation[Page[BanditOverview]]:
        """Return a page of bandits at a glance."""
        parent = "tenants/*" if every_tenant else self._parent
        request = pb.ListBanditOverviewsRequest(parent=parent, page_token=token, containing=containing)
        return Operation(OperatorServiceStub, "ListBanditOverviews", request, _overviews)

    def history(self, bandit: str) -> Operation[tuple[HistoryPoint, ...]]:
        """Ask how a bandit did over its life."""
        request = pb.GetBanditHistoryRequest(bandit=self._name(bandit))
        return Operation(OperatorServiceStub, "GetBanditHistory", request, _history)

    def verify(self, bandit: str) -> Operation[Verification]:
        """Ask whether a model is the fold of its log."""
        return Operation(
            OperatorServiceStub, "VerifyBandit", pb.VerifyBanditRequest(bandit=self._name(bandit)), _verification
        )

    def events(self, bandit: str, cursor: str, *, start: int, limit: int) -> Operation[EventPage]:
        """Return a page of a log."""
        request = pb.ExportEventsRequest(
            bandit=self._name(bandit), cursor=cursor, start_position=start, page_size=limit
        )
        return Operation(OperatorServiceStub, "ExportEvents", request, _events)

    def state(self, bandit: str, cursor: str) -> Operation[Page[str]]:
        """Return a page of what there is beside a log."""
        request = pb.ExportStateRequest(bandit=self._name(bandit), cursor=cursor)
        return Operation(OperatorServiceStub, "ExportState", request, _state)

    def lines(self, bandit: str, lines: Iterable[str], *, import_id: str, first_line: int) -> Operation[ImportedLines]:
        """Bring lines of a bandit."""
        request = pb.ImportEventsRequest(
            bandit=self._name(bandit), import_id=import_id, first_line=first_line, lines=lines
        )
        return Operation(OperatorServiceStub, "ImportEvents", request, _read_imported)

    def skip(self, bandit: str, position: int, *, reason: str) -> Operation[SkippedEvent]:
        """Have an event passed over."""
        request = pb.SkipEventRequest(bandit=self._name(bandit), position=position, reason=reason)
        return Operation(OperatorServiceStub, "SkipEvent", request, _read_skipped)


def _explanation(response: pb.ExplainRecommendationResponse) -> Explanation:
    return Explanation(
        request_id=response.request_id,
        context=tuple(response.context),
        features=features_of(response.features),
        candidates=tuple(response.candidate_item_ids) or None,
        recommendation=recommendation_of(response.recommendation),
        best_items=tuple(response.best_item_ids),
        log_position=response.log_position,
        recommend_time=response.recommend_time.ToDatetime(tzinfo=UTC),
        model_source=_SOURCES[response.model_source],
        reasons=_reasons(response.reasons) if response.HasField("reasons") else None,
    )


def _reasons(reasons: pb.Reasons) -> Reasons:
    return Reasons(
        shown=_read_ranked(reasons.shown),
        offset=reasons.offset,
        context=reasons.context_part,
        items=tuple(ItemPart(one.item_id, one.position, one.own, one.content, one.prior) for one in reasons.items),
        pairs=tuple(PairPart(one.first_item_id, one.second_item_id, one.value) for one in reasons.pairs),
        beta=reasons.beta,
        chosen_again=reasons.chosen_again,
        next_best=tuple(map(_read_ranked, reasons.next_best)),
    )


def _read_ranked(slate: pb.RankedSlate) -> RankedSlate:
    return RankedSlate(
        slate=tuple(slate.item_ids),
        mean=slate.mean,
        standard_deviation=slate.standard_deviation,
        upper_bound=slate.upper_bound,
        score=slate.score if slate.HasField("score") else None,
    )


def _top_slates(response: pb.ListTopSlatesResponse) -> TopSlates:
    return TopSlates(tuple(map(_read_ranked, response.slates)), response.model_version)


def _tenants(response: pb.ListTenantsResponse) -> Page[str]:
    return Page(tuple(one.removeprefix("tenants/") for one in response.tenants), response.next_page_token)


def _tenant_stats(response: pb.GetTenantStatsResponse) -> TenantStats:
    values = {field.name: getattr(response, field.name) for field in dataclass_fields(TenantStats)}
    return TenantStats(**values | {"quotas": tuple(map(_quota_use, response.quotas))})


def _service_status(response: pb.GetServiceStatusResponse) -> ServiceStatus:
    return ServiceStatus(
        version=response.version,
        worker=response.worker,
        start_time=response.start_time.ToDatetime(tzinfo=UTC),
        window=response.window.ToTimedelta(),
        calls=tuple(CallStatus(**_fields(CallStatus, one)) for one in response.calls),
        store=_store_status(response.store) if response.HasField("store") else None,
    )


def _store_status(store: pb.StoreStatus) -> StoreStatus:
    return StoreStatus(**_fields(StoreStatus, store) | {"problems": tuple(store.problems)})


def _fields(kind: type[CallStatus | StoreStatus], message: pb.CallStatus | pb.StoreStatus) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in dataclass_fields(kind)}


def _quota_use(use: pb.QuotaUse) -> QuotaUse:
    return QuotaUse(use.quota, use.limit if use.HasField("limit") else None, use.used if use.HasField("used") else None)


def _overviews(response: pb.ListBanditOverviewsResponse) -> Page[BanditOverview]:
    return Page(tuple(map(_overview, response.overviews)), response.next_page_token)


def _overview(overview: pb.BanditOverview) -> BanditOverview:
    _, tenant, _, bandit = overview.name.split("/")
    return BanditOverview(
        tenant=tenant,
        bandit=bandit,
        create_time=overview.create_time.ToDatetime(tzinfo=UTC),
        log_position=overview.log_position,
        snapshot_position=overview.snapshot_position,
        pending_count=overview.pending_count,
        late_reward_count=overview.late_reward_count,
        glance=_glance(overview.glance) if overview.HasField("glance") else None,
    )


def _glance(glance: pb.ModelGlance) -> ModelGlance:
    return ModelGlance(**{field.name: getattr(glance, field.name) for field in dataclass_fields(ModelGlance)})


def _history(response: pb.GetBanditHistoryResponse) -> tuple[HistoryPoint, ...]:
    return tuple(map(_point, response.points))


def _point(point: pb.HistoryPoint) -> HistoryPoint:
    values = {field.name: getattr(point, field.name) for field in dataclass_fields(HistoryPoint)}
    times = {name: getattr(point, name).ToDatetime(tzinfo=UTC) for name in ("start_time", "end_time")}
    optional = ("mean_reward", "explored_share", "join_rate")
    return HistoryPoint(**values | times | {name: None for name in optional if not point.HasField(name)})


def _verification(response: pb.VerifyBanditResponse) -> Verification:
    return Verification(**{field.name: getattr(response, field.name) for field in dataclass_fields(Verification)})


def _state(response: pb.ExportStateResponse) -> Page[str]:
    return Page(tuple(response.lines), response.next_cursor)


def _read_imported(response: pb.ImportEventsResponse) -> ImportedLines:
    return ImportedLines(response.next_line, response.log_position)


def _read_skipped(response: pb.SkipEventResponse) -> SkippedEvent:
    return SkippedEvent(response.model_version, response.log_position, response.problem)


def _events(response: pb.ExportEventsResponse) -> EventPage:
    return EventPage(tuple(map(_event, response.events)), response.next_cursor, response.log_position)


def _event(event: pb.ExportedEvent) -> ExportedEvent:
    # A page has a thousand of them: the library's own way to milliseconds takes as long as all the rest.
    time = event.time
    return ExportedEvent(event.position, time.seconds * 1000 + time.nanos // 1_000_000, event.event_json)
