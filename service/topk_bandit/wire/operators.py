"""Answers for operators on the wire."""

from __future__ import annotations

from topk_bandit.domain.operators import ItemPart, ModelSource, PairPart, QuotaUse, RankedSlate, Reasons
from topk_bandit.v1 import operator_service_pb2 as pb
from topk_bandit.wire.forms import Enumeration, Form

__all__ = ["QUOTA_USE", "RANKED_SLATE", "REASONS", "SOURCES"]

SOURCES = Enumeration(ModelSource, pb.ModelSource)
QUOTA_USE = Form(QuotaUse, pb.QuotaUse)
RANKED_SLATE = Form(RankedSlate, pb.RankedSlate, names={"slate": "item_ids"})
REASONS = Form(
    Reasons,
    pb.Reasons,
    names={"context": "context_part"},
    parts={
        "shown": RANKED_SLATE,
        "items": Form(ItemPart, pb.ItemPart),
        "pairs": Form(PairPart, pb.PairPart),
        "next_best": RANKED_SLATE,
    },
)
