"""The same reward from many sides at once is one reward."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.rpc.harness import channel_to
from tests.rpc.wire import create, recommend
from tests.waiting import PATIENCE

from topk_bandit.v1 import bandit_service_pb2 as bandit_pb
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    import grpc
    from tests.faults.service import Service

NAME = "tenants/acme/bandits/duplicates"


def test_one_of_fifty_equal_rewards_counts(shared_service: Service, shared_channel: grpc.Channel) -> None:
    create(shared_channel, NAME)
    for number in range(4):
        one = recommend(shared_channel, bandit=NAME).recommendation_id
        outcomes = posted(shared_service, [pb.RewardRequest(bandit=NAME, recommendation_id=one, value=0.5)] * 50)
        assert outcomes == {pb.REWARD_OUTCOME_ACCEPTED: 1, pb.REWARD_OUTCOME_DUPLICATE: 49}
        stats = BanditServiceStub(shared_channel).GetBanditStats(
            bandit_pb.GetBanditStatsRequest(bandit=NAME), timeout=PATIENCE
        )
        assert (stats.observation_count, stats.posterior_row_count, stats.mean_reward) == (number + 1, number + 1, 0.5)
        assert stats.log_position == 2 + 2 * (number + 1)


def test_one_of_fifty_equal_requests_is_recorded(shared_service: Service, shared_channel: grpc.Channel) -> None:
    name = f"{NAME}-2"
    create(shared_channel, name)
    gate = threading.Barrier(50)

    def ask(channel: grpc.Channel) -> bytes:
        gate.wait(PATIENCE)
        return recommend(channel, bandit=name, request_id="once").SerializeToString(deterministic=True)

    with ExitStack() as stack:
        channels = [stack.enter_context(channel_to(shared_service.address)) for _ in range(3)]
        pool = stack.enter_context(ThreadPoolExecutor(50))
        replies = set(pool.map(ask, itertools.islice(itertools.cycle(channels), 50)))
    assert len(replies) == 1
    stats = BanditServiceStub(shared_channel).GetBanditStats(
        bandit_pb.GetBanditStatsRequest(bandit=name), timeout=PATIENCE
    )
    assert (stats.recommendation_count, stats.pending_count, stats.log_position) == (1, 1, 3)


def posted(service: Service, requests: list[pb.RewardRequest]) -> Counter[int]:
    """Post all requests at the same moment, through three connections."""
    gate = threading.Barrier(len(requests))

    def post(channel: grpc.Channel, request: pb.RewardRequest) -> int:
        gate.wait(PATIENCE)
        return int(RecommenderServiceStub(channel).Reward(request, timeout=PATIENCE).outcome)

    with ExitStack() as stack:
        channels = [stack.enter_context(channel_to(service.address)) for _ in range(3)]
        pool = stack.enter_context(ThreadPoolExecutor(len(requests)))
        return Counter(pool.map(post, itertools.cycle(channels), requests))
