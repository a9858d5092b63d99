"""Calls about one bandit that are sent again until the store was there, and fast enough."""

from __future__ import annotations

from contextlib import suppress

import grpc
from tests.rpc.wire import HOME, create, recommend, refused
from tests.waiting import PATIENCE, until

from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

__all__ = ["created", "deleted", "recorded", "reward_of", "rewarded"]


def created(channel: grpc.Channel) -> None:
    until(lambda: create(channel) is None, what="a bandit is there")


def deleted(channel: grpc.Channel) -> None:
    until(lambda: _is_deleted(channel), what="it is deleted")


def _is_deleted(channel: grpc.Channel) -> bool:
    stub = BanditServiceStub(channel)
    with suppress(grpc.RpcError):
        stub.DeleteBandit(bpb.DeleteBanditRequest(name=HOME), timeout=PATIENCE)
    return refused(stub.GetBandit, bpb.GetBanditRequest(name=HOME), timeout=PATIENCE).code == "NOT_FOUND"


def recorded(channel: grpc.Channel, request_id: str) -> rpb.RecommendResponse:
    """Return a slate that is recorded."""
    given: list[rpb.RecommendResponse] = []

    def ask() -> bool:
        given.append(recommend(channel, request_id=request_id, timeout=PATIENCE))
        return not given[-1].degraded

    until(ask, what=f"{request_id} is recorded")
    return given[-1]


def reward_of(slate: rpb.RecommendResponse, value: float) -> rpb.RewardRequest:
    return rpb.RewardRequest(bandit=HOME, recommendation_id=slate.recommendation_id, value=value)


def rewarded(channel: grpc.Channel, slate: rpb.RecommendResponse, value: float) -> rpb.RewardOutcome:
    """Post a reward until that is answered, and return its outcome."""
    answers: list[rpb.RewardResponse] = []

    def post() -> bool:
        answers.append(RecommenderServiceStub(channel).Reward(reward_of(slate, value), timeout=PATIENCE))
        return True

    until(post, what="the reward is taken")
    return answers[-1].outcome
