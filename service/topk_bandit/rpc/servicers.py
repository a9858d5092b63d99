"""The services: each method converts, calls a use case, and converts back."""

from __future__ import annotations

import uuid
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc import converters, fields, imports, placements
from topk_bandit.rpc.aside import do_aside
from topk_bandit.rpc.entries import answer_entries
from topk_bandit.rpc.failures import place_failure, reward_error
from topk_bandit.rpc.peers import PeerRefusedError
from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import bandit_service_pb2_grpc as bandit_grpc
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.v1 import recommender_service_pb2_grpc as recommender_grpc
from topk_bandit.wire.bandits import write_stats

if TYPE_CHECKING:
    from typing import Any

    import grpc

    from topk_bandit.bandits.administration import Bandits
    from topk_bandit.bandits.recommender import Recommender
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.errors import NotFoundError
    from topk_bandit.domain.slates import Recommendation, RewardReceipt
    from topk_bandit.rpc.failures import FailureReporter
    from topk_bandit.rpc.peers import Peers

    Context = grpc.aio.ServicerContext[Any, Any]

__all__ = ["FEEDBACK_METHODS", "READ_ONLY_METHODS", "BanditServicer", "RecommenderServicer"]

_RECOMMEND = f"/{recommender_pb.DESCRIPTOR.services_by_name['RecommenderService'].full_name}/Recommend"


# GetBanditStats is not among them: it closes what is overdue before it counts.
READ_ONLY_METHODS = frozenset(
    f"/{bandit_pb.DESCRIPTOR.services_by_name['BanditService'].full_name}/{method}"
    for method in ("GetBandit", "ListBandits", "ListItems", "GetImport")
)

FEEDBACK_METHODS = frozenset(
    f"/{recommender_pb.DESCRIPTOR.services_by_name['RecommenderService'].full_name}/{method}"
    for method in ("Reward", "BatchReward", "RewardPage", "Activate", "VoidReward", "AmendReward")
)


class RecommenderServicer(recommender_grpc.RecommenderServiceServicer):
    """The hot path.

    Parameters
    ----------
    failures
        Explains the errors of single entries of a batch; those of whole calls are left to the guard around the call.
    peers
        Answer for the placements of a page of whose bandits they are the owners.
    """

    def __init__(self, use_cases: Recommender, *, failures: FailureReporter, peers: Peers) -> None:
        self._use_cases = use_cases
        self._failures = failures
        self._peers = peers

    async def Recommend(
        self, request: recommender_pb.RecommendRequest, _context: Context
    ) -> recommender_pb.RecommendResponse:
        """Give out a slate."""
        name, wanted, version = converters.recommendation_request(request)
        recommendation = await self._use_cases.recommend(
            name, wanted, min_model_version=version, strict_candidates=request.strict_candidates
        )
        return converters.recommendation_to_proto(recommendation)

    async def BatchRecommend(
        self, request: recommender_pb.BatchRecommendRequest, context: Context
    ) -> recommender_pb.BatchRecommendResponse:
        """Give out slates, each with a result of its own."""
        name, entries = await do_aside(converters.batch_of_requests, request)
        recommend = partial(self._use_cases.recommend_all, name, time_left=context.time_remaining)
        results = starmap(self._slate, await answer_entries("requests", entries, recommend))
        return recommender_pb.BatchRecommendResponse(results=results)

    def _slate(self, path: str, outcome: Recommendation | Exception) -> recommender_pb.RecommendResult:
        if isinstance(outcome, Exception):
            return recommender_pb.RecommendResult(error=self._entry_error(outcome, "BatchRecommend", path))
        return recommender_pb.RecommendResult(slate=converters.recommendation_to_proto(outcome))

    async def RecommendPage(
        self, request: recommender_pb.RecommendPageRequest, context: Context
    ) -> recommender_pb.RecommendPageResponse:
        """Give out the slates of a page, each with a result of its own and none with an item of another."""
        page = placements.page_of(request, new_id=uuid.uuid4().hex)
        response, shown = recommender_pb.RecommendPageResponse(page_id=page.page_id), dict[str, None]()
        for index, placement in enumerate(page.placements):
            result = await self._place(placement, f"placements[{index}]", tuple(shown), context)
            shown |= dict.fromkeys(result.slate.item_ids)
            response.placements.append(result)
        return response

    async def _place(
        self,
        placement: recommender_pb.RecommendRequest | InvalidArgumentError,
        path: str,
        shown: tuple[str, ...],
        context: Context,
    ) -> recommender_pb.RecommendResult:
        """Return the slate of a placement from the bandit's owner, or why there is none."""
        if isinstance(placement, InvalidArgumentError):
            return recommender_pb.RecommendResult(error=self._entry_error(placement, "RecommendPage", path))
        added_rule = f"rules[{len(placement.rules)}]" if shown else ""
        asked = placements.leave_out(placement, shown)
        try:
            slate = await self._peers.answer(
                _RECOMMEND, placement.bandit, asked, lambda: self.Recommend(asked, context)
            )
        except PeerRefusedError as refused:
            failure = refused.failure
        except Exception as error:  # noqa: BLE001 - it stops no other placement
            failure = self._failures.failure(error, call="RecommendPage")
        else:
            return recommender_pb.RecommendResult(slate=slate)
        return recommender_pb.RecommendResult(error=reward_error(place_failure(failure, path, added_rule=added_rule)))

    async def RewardPage(
        self, request: recommender_pb.RewardPageRequest, _context: Context
    ) -> recommender_pb.RewardPageResponse:
        """Take in one reward for the slates of a page, each with a result of its own."""
        posted = placements.page_reward(request)
        response = recommender_pb.RewardPageResponse()
        for slate in posted.slates:
            response.results.append(self._result(await self._reward_placement(slate, posted), "RewardPage"))
        return response

    async def _reward_placement(
        self, slate: tuple[BanditName, str] | InvalidArgumentError | NotFoundError, posted: placements.PageReward
    ) -> RewardReceipt | Exception:
        if isinstance(slate, Exception):
            return slate
        name, request_id = slate
        try:
            recommendation_id = await self._use_cases.find_id(name, request_id)
            return await self._use_cases.reward(
                name, recommendation_id, posted.value, reward_id=posted.reward_id, final=posted.final
            )
        except Exception as error:  # noqa: BLE001 - it stops no other slate
            return error

    async def Activate(
        self, request: recommender_pb.ActivateRequest, _context: Context
    ) -> recommender_pb.ActivateResponse:
        """Note that a slate was shown."""
        name, recommendation_id, shown = converters.activation_request(request)
        receipt = await self._use_cases.activate(name, recommendation_id, shown)
        return converters.activation_to_proto(receipt)

    async def Reward(self, request: recommender_pb.RewardRequest, _context: Context) -> recommender_pb.RewardResponse:
        """Take in a reward."""
        name, reward = converters.reward_request(request)
        receipt = await self._use_cases.reward(
            name,
            reward.recommendation_id,
            reward.value,
            reward_id=reward.reward_id,
            final=reward.final,
            item_values=reward.item_values,
        )
        return converters.receipt_to_proto(receipt, recommender_pb.RewardResponse)

    async def VoidReward(
        self, request: recommender_pb.VoidRewardRequest, _context: Context
    ) -> recommender_pb.VoidRewardResponse:
        """Take a reward back."""
        name, recommendation_id, reward_id = converters.reward_named(request)
        receipt = await self._use_cases.correct_reward(name, recommendation_id, None, reward_id=reward_id)
        return converters.receipt_to_proto(receipt, recommender_pb.VoidRewardResponse)

    async def AmendReward(
        self, request: recommender_pb.AmendRewardRequest, _context: Context
    ) -> recommender_pb.AmendRewardResponse:
        """Replace a reward by another value."""
        name, reward = converters.amended_reward(request)
        receipt = await self._use_cases.correct_reward(
            name,
            reward.recommendation_id,
            reward.value,
            reward_id=reward.reward_id,
            item_values=reward.item_values,
        )
        return converters.receipt_to_proto(receipt, recommender_pb.AmendRewardResponse)

    async def BatchReward(
        self, request: recommender_pb.BatchRewardRequest, _context: Context
    ) -> recommender_pb.BatchRewardResponse:
        """Take in rewards in order, each with a result of its own."""
        name, entries = await do_aside(converters.batch_of_rewards, request)
        outcomes = await answer_entries("rewards", entries, partial(self._use_cases.rewards, name))
        response = recommender_pb.BatchRewardResponse()
        for path, outcome in outcomes:
            response.results.append(self._result(outcome, "BatchReward", path))
        return response

    def _entry_error(self, error: Exception, call: str, path: str) -> recommender_pb.RewardError:
        """Return the failure of an entry; without a path its fields have it already."""
        failure = self._failures.failure(error, call=call)
        return reward_error(place_failure(failure, path) if path else failure)

    def _result(self, receipt: RewardReceipt | Exception, call: str, path: str = "") -> recommender_pb.RewardResult:
        if isinstance(receipt, Exception):
            return recommender_pb.RewardResult(error=self._entry_error(receipt, call, path))
        return converters.receipt_to_proto(receipt, recommender_pb.RewardResult)


class BanditServicer(bandit_grpc.BanditServiceServicer):
    """Bandits and their items."""

    def __init__(self, use_cases: Bandits) -> None:
        self._use_cases = use_cases

    async def CreateBandit(
        self, request: bandit_pb.CreateBanditRequest, _context: Context
    ) -> bandit_pb.CreateBanditResponse:
        """Create a bandit."""
        name, settings = converters.bandit_creation(request, self._use_cases.default_exploration)
        record = await self._use_cases.create_bandit(name, settings)
        return bandit_pb.CreateBanditResponse(bandit=converters.bandit_to_proto(record))

    async def GetBandit(self, request: bandit_pb.GetBanditRequest, _context: Context) -> bandit_pb.GetBanditResponse:
        """Return a bandit."""
        record = await self._use_cases.get_bandit(fields.bandit_name("name", request.name))
        return bandit_pb.GetBanditResponse(bandit=converters.bandit_to_proto(record))

    async def ListBandits(
        self, request: bandit_pb.ListBanditsRequest, _context: Context
    ) -> bandit_pb.ListBanditsResponse:
        """Return a page of bandits."""
        tenant, page = converters.bandit_page(request)
        records = await self._use_cases.list_bandits(tenant, after=page.after, limit=page.size + 1)
        return converters.bandits_to_proto(records, page)

    async def UpdateBandit(
        self, request: bandit_pb.UpdateBanditRequest, _context: Context
    ) -> bandit_pb.UpdateBanditResponse:
        """Change what may change of a bandit."""
        name, change = converters.bandit_update(request, self._use_cases.default_exploration)
        record = await self._use_cases.update_bandit(name, change)
        return bandit_pb.UpdateBanditResponse(bandit=converters.bandit_to_proto(record))

    async def ResetBandit(
        self, request: bandit_pb.ResetBanditRequest, _context: Context
    ) -> bandit_pb.ResetBanditResponse:
        """Have a bandit forget what it learned."""
        name, request_id = converters.bandit_reset(request)
        record = await self._use_cases.reset_bandit(name, request_id=request_id)
        return bandit_pb.ResetBanditResponse(bandit=converters.bandit_to_proto(record))

    async def DeleteBandit(
        self, request: bandit_pb.DeleteBanditRequest, _context: Context
    ) -> bandit_pb.DeleteBanditResponse:
        """Remove a bandit."""
        await self._use_cases.delete_bandit(fields.bandit_name("name", request.name))
        return bandit_pb.DeleteBanditResponse()

    async def UpsertItems(
        self, request: bandit_pb.UpsertItemsRequest, _context: Context
    ) -> bandit_pb.UpsertItemsResponse:
        """Add or change items."""
        name, items, mask = await do_aside(converters.item_upsert, request)
        return bandit_pb.UpsertItemsResponse(item_count=await self._use_cases.upsert_items(name, items, mask))

    async def RetireItems(
        self, request: bandit_pb.RetireItemsRequest, _context: Context
    ) -> bandit_pb.RetireItemsResponse:
        """Take items out for good."""
        name, item_ids = await do_aside(converters.item_retirement, request)
        return bandit_pb.RetireItemsResponse(item_count=await self._use_cases.retire_items(name, item_ids))

    async def ListItems(self, request: bandit_pb.ListItemsRequest, _context: Context) -> bandit_pb.ListItemsResponse:
        """Return a page of items."""
        name, page = converters.item_page(request)
        records = await self._use_cases.list_items(name, after=page.after, limit=page.size + 1)
        return converters.items_to_proto(records, page)

    async def ImportObservations(
        self, request: bandit_pb.ImportObservationsRequest, _context: Context
    ) -> bandit_pb.ImportObservationsResponse:
        """Take in slates that were shown elsewhere."""
        name, sent = await do_aside(imports.import_request, request)
        return imports.receipt_to_proto(await self._use_cases.import_rows(name, sent))

    async def GetImport(self, request: bandit_pb.GetImportRequest, _context: Context) -> bandit_pb.GetImportResponse:
        """Return how far an import is."""
        name, import_id = imports.import_named(request)
        progress = await self._use_cases.find_import(name, import_id)
        return bandit_pb.GetImportResponse(
            next_row=progress.next_row,
            accepted_count=progress.accepted,
            data_version=self._use_cases.data_version,
        )

    async def GetBanditStats(
        self, request: bandit_pb.GetBanditStatsRequest, _context: Context
    ) -> bandit_pb.GetBanditStatsResponse:
        """Return where a bandit stands."""
        return write_stats(await self._use_cases.stats(fields.bandit_name("bandit", request.bandit)))
