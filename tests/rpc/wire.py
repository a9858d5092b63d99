"""What tests of the wire say again and again: requests, and a failed call with its details decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tests.waiting import PATIENCE

from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from google.protobuf.message import Message

HOME = "tenants/acme/bandits/home"
KINDS = (
    error_details_pb2.BadRequest,
    error_details_pb2.ErrorInfo,
    error_details_pb2.RetryInfo,
    error_details_pb2.ResourceInfo,
    error_details_pb2.QuotaFailure,
)


@dataclass
class Refusal:
    """A status with its details."""

    code: str
    message: str
    fields: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    domain: str = ""
    reference: str = ""
    retry_after: float | None = None
    resource: str = ""
    violations: list[tuple[str, str]] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)


def refusal_of(error: grpc.RpcError) -> Refusal:
    refusal = Refusal(error.code().name, error.details())
    status = rpc_status.from_call(error)
    for packed in status.details if status is not None else ():
        detail = next(kind() for kind in KINDS if packed.Is(kind.DESCRIPTOR))
        packed.Unpack(detail)
        _take(refusal, detail)
    return refusal


def _take(refusal: Refusal, detail: Message) -> None:
    match detail:
        case error_details_pb2.BadRequest():
            refusal.fields |= {violation.field: violation.description for violation in detail.field_violations}
        case error_details_pb2.ErrorInfo():
            refusal.reason, refusal.domain = detail.reason, detail.domain
            refusal.reference = detail.metadata.get("reference", "")
            refusal.metadata = dict(detail.metadata)
        case error_details_pb2.RetryInfo():
            refusal.retry_after = detail.retry_delay.ToTimedelta().total_seconds()
        case error_details_pb2.ResourceInfo():
            refusal.resource = detail.resource_name
        case error_details_pb2.QuotaFailure():
            refusal.violations = [(violation.subject, violation.description) for violation in detail.violations]


def refused(call: Callable[..., Any], request: Message | bytes, **options: object) -> Refusal:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=options.pop("timeout", PATIENCE), **options)
    return refusal_of(caught.value)


def bandit(name: str = HOME, **settings: object) -> bandit_pb.Bandit:
    return bandit_pb.Bandit(**{"name": name, "slate_size": 2, "item_capacity": 20, **settings})


def create(channel: grpc.Channel, name: str = HOME, *, items: Iterable[str] = "abcd", **settings: object) -> None:
    stub = BanditServiceStub(channel)
    stub.CreateBandit(bandit_pb.CreateBanditRequest(bandit=bandit(name, **settings)), timeout=PATIENCE)
    added = [bandit_pb.Item(item_id=item) for item in items]
    stub.UpsertItems(bandit_pb.UpsertItemsRequest(bandit=name, items=added), timeout=PATIENCE)


_DIGITS = {ord("0") + digit: 0x1F34A + digit for digit in range(10)}


def longest_id(number: int) -> str:
    """Return an id of 128 characters of four bytes each."""
    return f"{number:0128}".translate(_DIGITS)


def recommend(
    channel: grpc.Channel, *, timeout: float = PATIENCE, **request: object
) -> recommender_pb.RecommendResponse:
    wanted = recommender_pb.RecommendRequest(**{"bandit": HOME, **request})
    return RecommenderServiceStub(channel).Recommend(wanted, timeout=timeout)
