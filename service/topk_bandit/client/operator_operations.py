"""Each call of an operator as a value; see `topk_bandit.client.operations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.client.arguments import message, numbers, texts
from topk_bandit.client.features import feature_values, features_of
from topk_bandit.client.operations import Operation, Page, recommendation_of
from topk_bandit.client.operator_values import (
    BanditOverview,
    EventPage,
    Explanation,
    ExportedEvent,
    HistoryPoint,
    ImportedLines,
    ServiceStatus,
    SkippedEvent,
    TenantStats,
    Verification,
)
from topk_bandit.client.rules import rule_messages
from topk_bandit.v1 import operator_service_pb2 as pb
from topk_bandit.v1 import rules_pb2 as rules_pb
from topk_bandit.v1.operator_service_pb2_grpc import OperatorServiceStub
from topk_bandit.wire.forms import SPAN, TIME, Form, Pair
from topk_bandit.wire.operators import CALL, GLANCE, QUOTA_USE, REASONS, SKIPPED, SOURCES, STORE, TOP_SLATES
from topk_bandit.wire.rules import ABSENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.client.operator_values import TopSlates
    from topk_bandit.client.rules import Rule

__all__ = ["OperatorOperations"]

_TENANT_STATS = Form(TenantStats, pb.GetTenantStatsResponse, parts={"quotas": QUOTA_USE})
_STATUS = Form(
    ServiceStatus,
    pb.GetServiceStatusResponse,
    parts={
        "start_time": TIME,
        "window": SPAN,
        "calls": CALL,
        "store": STORE,
    },
)
_OVERVIEW = Form(
    BanditOverview,
    pb.BanditOverview,
    parts={"create_time": TIME, "glance": GLANCE},
    beside={"tenant", "bandit"},
)
_POINT = Form(HistoryPoint, pb.HistoryPoint, parts={"start_time": TIME, "end_time": TIME})
_VERIFICATION = Form(Verification, pb.VerifyBanditResponse)
_IMPORTED = Form(ImportedLines, pb.ImportEventsResponse)
_EXPLANATION = Form(
    Explanation,
    pb.ExplainRecommendationResponse,
    names={"best_items": "best_item_ids"},
    parts={
        "recommendation": Pair(read=recommendation_of),
        "recommend_time": TIME,
        "model_source": SOURCES,
        "reasons": REASONS,
        "absent_items": ABSENCE,
    },
    beside={"features", "candidates"},
)


class OperatorOperations:
    """The calls of those who operate the service, about one tenant."""

    def __init__(self, tenant: str) -> None:
        self._parent = f"tenants/{tenant}"

    def _name(self, bandit: str) -> str:
        return f"{self._parent}/bandits/{bandit}"

    def explain(self, bandit: str, recommendation_id: str, absent: Iterable[str]) -> Operation[Explanation]:
        """Ask why a slate was what it was, and why it lacks some items."""
        request = message(
            pb.ExplainRecommendationRequest,
            bandit=self._name(bandit),
            recommendation_id=recommendation_id,
            explain_item_ids=texts("absent", absent),
        )
        return Operation(OperatorServiceStub, "ExplainRecommendation", request, _explanation)

    def top_slates(
        self,
        bandit: str,
        context: Iterable[float],
        *,
        features: object,
        limit: int,
        rules: Iterable[Rule | str] | None,
    ) -> Operation[TopSlates]:
        """Ask for the best slates."""
        request = message(
            pb.ListTopSlatesRequest,
            bandit=self._name(bandit),
            context=numbers("context", context),
            features=None if features is None else feature_values(features),
            limit=limit,
            proposed=None if rules is None else rules_pb.SlateRules(rules=rule_messages("rules", rules)),
        )
        return Operation(OperatorServiceStub, "ListTopSlates", request, TOP_SLATES.read)

    def tenants(self, token: str) -> Operation[Page[str]]:
        """Return a page of tenants."""
        return Operation(OperatorServiceStub, "ListTenants", pb.ListTenantsRequest(page_token=token), _tenants)

    def tenant_stats(self) -> Operation[TenantStats]:
        """Ask what the tenant uses."""
        request = pb.GetTenantStatsRequest(tenant=self._parent)
        return Operation(OperatorServiceStub, "GetTenantStats", request, _TENANT_STATS.read)

    def service_status(self) -> Operation[ServiceStatus]:
        """Ask how a worker and the store are."""
        return Operation(OperatorServiceStub, "GetServiceStatus", pb.GetServiceStatusRequest(), _STATUS.read)

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
            OperatorServiceStub, "VerifyBandit", pb.VerifyBanditRequest(bandit=self._name(bandit)), _VERIFICATION.read
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
        return Operation(OperatorServiceStub, "ImportEvents", request, _IMPORTED.read)

    def skip(self, bandit: str, position: int, *, reason: str) -> Operation[SkippedEvent]:
        """Have an event passed over."""
        request = pb.SkipEventRequest(bandit=self._name(bandit), position=position, reason=reason)
        return Operation(OperatorServiceStub, "SkipEvent", request, SKIPPED.read)


def _explanation(response: pb.ExplainRecommendationResponse) -> Explanation:
    candidates = tuple(response.candidate_item_ids) or None
    return _EXPLANATION.read(response, features=features_of(response.features), candidates=candidates)


def _tenants(response: pb.ListTenantsResponse) -> Page[str]:
    return Page(tuple(one.removeprefix("tenants/") for one in response.tenants), response.next_page_token)


def _overviews(response: pb.ListBanditOverviewsResponse) -> Page[BanditOverview]:
    return Page(tuple(map(_overview, response.overviews)), response.next_page_token)


def _overview(overview: pb.BanditOverview) -> BanditOverview:
    _, tenant, _, bandit = overview.name.split("/")
    return _OVERVIEW.read(overview, tenant=tenant, bandit=bandit)


def _history(response: pb.GetBanditHistoryResponse) -> tuple[HistoryPoint, ...]:
    return tuple(map(_POINT.read, response.points))


def _state(response: pb.ExportStateResponse) -> Page[str]:
    return Page(tuple(response.lines), response.next_cursor)


def _events(response: pb.ExportEventsResponse) -> EventPage:
    return EventPage(tuple(map(_event, response.events)), response.next_cursor, response.log_position)


def _event(event: pb.ExportedEvent) -> ExportedEvent:
    # A page has a thousand of them: the library's own way to milliseconds takes as long as all the rest.
    time = event.time
    return ExportedEvent(event.position, time.seconds * 1000 + time.nanos // 1_000_000, event.event_json)
