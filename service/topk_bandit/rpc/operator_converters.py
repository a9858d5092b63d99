"""Between the wire and what operators are told: `topk_bandit.domain.operators`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.features import Features
from topk_bandit.domain.operators import ModelSource
from topk_bandit.rpc import fields
from topk_bandit.rpc.converters import context_from_proto, recommendation_to_proto, timestamp
from topk_bandit.rpc.features import features_to_proto
from topk_bandit.v1 import operator_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.operators import Explanation, RankedSlate, Reasons

__all__ = ["explanation_request", "explanation_to_proto", "top_slates_request", "top_slates_to_proto"]

_DEFAULT_SLATES = 10
_MOST_SLATES = 100

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
        best_item_ids=explanation.recommendation.best_slate,
        log_position=explanation.position,
        recommend_time=timestamp(explanation.at_ms),
        model_source=_SOURCES[explanation.source],
        reasons=None if explanation.reasons is None else _reasons(explanation.reasons),
    )


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
        shown=_ranked(reasons.shown),
        offset=reasons.offset,
        context_part=reasons.context,
        items=items,
        pairs=pairs,
        beta=reasons.beta,
        chosen_again=reasons.chosen_again,
        next_best=map(_ranked, reasons.next_best),
    )


def _ranked(slate: RankedSlate) -> pb.RankedSlate:
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
    return name, context_from_proto(request), limit or _DEFAULT_SLATES


def top_slates_to_proto(version: int, slates: Sequence[RankedSlate]) -> pb.ListTopSlatesResponse:
    """Return the reply to a ListTopSlates."""
    return pb.ListTopSlatesResponse(slates=map(_ranked, slates), model_version=version)
