"""Answers for operators on the wire."""

from __future__ import annotations

from topk_bandit.domain.operators import (
    BanditOverview,
    CallStatus,
    HistoryPoint,
    ItemPart,
    ModelGlance,
    ModelSource,
    PairPart,
    QuotaUse,
    RankedSlate,
    Reasons,
    SkippedEvent,
    StoreStatus,
    TenantStats,
    TopSlates,
    Verification,
)
from topk_bandit.v1 import operator_service_pb2 as pb
from topk_bandit.wire.forms import MILLISECONDS, Enumeration, Form, Pair

__all__ = [
    "CALL",
    "GLANCE",
    "HISTORY_POINT",
    "OVERVIEW",
    "QUOTA_USE",
    "RANKED_SLATE",
    "REASONS",
    "SKIPPED",
    "SOURCES",
    "STORE",
    "TENANT_STATS",
    "TOP_SLATES",
    "VERIFICATION",
]

SOURCES = Enumeration(ModelSource, pb.ModelSource)
RANKED_SLATE = Form(RankedSlate, pb.RankedSlate, names={"slate": "item_ids"})
TOP_SLATES = Form(TopSlates, pb.ListTopSlatesResponse, parts={"slates": RANKED_SLATE})
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
QUOTA_USE = Form(QuotaUse, pb.QuotaUse)
TENANT_STATS = Form(
    TenantStats,
    pb.GetTenantStatsResponse,
    names={"memory_bytes": "model_memory_bytes"},
    parts={"quotas": QUOTA_USE},
    beside={"tenant"},
)
CALL = Form(CallStatus, pb.CallStatus)
STORE = Form(StoreStatus, pb.StoreStatus)
GLANCE = Form(ModelGlance, pb.ModelGlance)
OVERVIEW = Form(
    BanditOverview,
    pb.BanditOverview,
    names={"created_ms": "create_time"},
    parts={"name": Pair(str), "created_ms": MILLISECONDS, "glance": GLANCE},
)
HISTORY_POINT = Form(
    HistoryPoint,
    pb.HistoryPoint,
    names={"start_ms": "start_time", "end_ms": "end_time"},
    parts={"start_ms": MILLISECONDS, "end_ms": MILLISECONDS},
)
VERIFICATION = Form(Verification, pb.VerifyBanditResponse, names={"version": "model_version"})
SKIPPED = Form(SkippedEvent, pb.SkipEventResponse)
