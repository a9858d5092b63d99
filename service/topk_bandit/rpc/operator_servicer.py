"""What operators ask: each method converts, calls a use case, and converts back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.rpc import fields
from topk_bandit.rpc import operator_converters as converters
from topk_bandit.v1 import operator_service_pb2 as pb
from topk_bandit.v1 import operator_service_pb2_grpc as pb_grpc
from topk_bandit.wire.operators import SKIPPED, TENANT_STATS, TOP_SLATES, VERIFICATION

if TYPE_CHECKING:
    from typing import Any

    import grpc

    from topk_bandit.bandits.operators import Operators
    from topk_bandit.rpc.peers import Peers

    Context = grpc.aio.ServicerContext[Any, Any]

__all__ = ["READ_ONLY_OPERATOR_METHODS", "OperatorServicer"]

_DESCRIBED = pb.DESCRIPTOR.services_by_name["OperatorService"]
_SERVICE = f"/{_DESCRIBED.full_name}"

READ_ONLY_OPERATOR_METHODS = frozenset(
    f"{_SERVICE}/{method.name}" for method in _DESCRIBED.methods if method.name not in {"ImportEvents", "SkipEvent"}
)


class OperatorServicer(pb_grpc.OperatorServiceServicer):
    """What operators ask."""

    def __init__(self, use_cases: Operators, peers: Peers) -> None:
        self._use_cases = use_cases
        self._peers = peers

    async def ExplainRecommendation(
        self, request: pb.ExplainRecommendationRequest, _context: Context
    ) -> pb.ExplainRecommendationResponse:
        """Return why a slate was what it was."""
        asked = converters.explanation_request(request)
        return converters.explanation_to_proto(await self._use_cases.explain_recommendation(*asked))

    async def ListTopSlates(self, request: pb.ListTopSlatesRequest, _context: Context) -> pb.ListTopSlatesResponse:
        """Return the slates that a model thinks best."""
        name, context, limit, proposed = converters.top_slates_request(request)
        return TOP_SLATES.write(await self._use_cases.list_top_slates(name, context, limit=limit, proposed=proposed))

    async def ListTenants(self, request: pb.ListTenantsRequest, _context: Context) -> pb.ListTenantsResponse:
        """Return a page of tenants."""
        page = converters.tenant_page(request)
        tenants = await self._use_cases.list_tenants(after=page.after, limit=page.size + 1)
        return converters.tenants_to_proto(tenants, page)

    async def GetTenantStats(self, request: pb.GetTenantStatsRequest, _context: Context) -> pb.GetTenantStatsResponse:
        """Return what a tenant uses."""
        tenant = fields.tenant_name("tenant", request.tenant)
        stats = TENANT_STATS.write(await self._use_cases.tenant_stats(tenant))
        for other in await self._peers.ask_all(f"{_SERVICE}/GetTenantStats", request):
            converters.add_models(stats, other)
        return stats

    async def GetServiceStatus(
        self, _request: pb.GetServiceStatusRequest, _context: Context
    ) -> pb.GetServiceStatusResponse:
        """Return how this worker and the store are."""
        return converters.service_status_to_proto(*await self._use_cases.service_status())

    async def ListBanditOverviews(
        self, request: pb.ListBanditOverviewsRequest, _context: Context
    ) -> pb.ListBanditOverviewsResponse:
        """Return a page of bandits at a glance."""
        tenant, after, limit, containing = converters.overview_page(request)
        page = converters.overviews_to_proto(
            *await self._use_cases.list_overviews(tenant, after=after, limit=limit, containing=containing)
        )
        for other in await self._peers.ask_all(f"{_SERVICE}/ListBanditOverviews", request):
            converters.take_glances(page, other)
        return page

    async def GetBanditHistory(
        self, request: pb.GetBanditHistoryRequest, _context: Context
    ) -> pb.GetBanditHistoryResponse:
        """Return how a bandit did over its life."""
        name = fields.bandit_name("bandit", request.bandit)
        return converters.history_to_proto(await self._use_cases.history(name))

    async def VerifyBandit(self, request: pb.VerifyBanditRequest, _context: Context) -> pb.VerifyBanditResponse:
        """Return whether a model is the fold of its log."""
        name = fields.bandit_name("bandit", request.bandit)
        verification = await self._use_cases.verify(name)
        return VERIFICATION.write(verification, agrees=not verification.difference)

    async def ExportEvents(self, request: pb.ExportEventsRequest, _context: Context) -> pb.ExportEventsResponse:
        """Return a page of a log."""
        name, start, limit, incarnation = converters.event_page(request)
        page = await self._use_cases.export_events(name, start=start, limit=limit, incarnation=incarnation)
        return await converters.events_to_proto(page)

    async def ExportState(self, request: pb.ExportStateRequest, _context: Context) -> pb.ExportStateResponse:
        """Return a page of what there is of a bandit beside its log."""
        name, place = converters.state_page(request)
        return converters.state_to_proto(*await self._use_cases.export_state(name, place))

    async def ImportEvents(self, request: pb.ImportEventsRequest, _context: Context) -> pb.ImportEventsResponse:
        """Take in lines of a bandit."""
        receipt = await self._use_cases.import_events(*converters.lines_request(request))
        return pb.ImportEventsResponse(next_line=receipt.next_line, log_position=receipt.log_position)

    async def SkipEvent(self, request: pb.SkipEventRequest, _context: Context) -> pb.SkipEventResponse:
        """Have an event passed over."""
        name, position, reason = converters.skip_request(request)
        receipt = await self._use_cases.skip_event(name, position, reason=reason)
        return SKIPPED.write(receipt)
