"""A service as one would write it around another policy: gRPC, a policy, and its slates joined with rewards in Redis.

    python loadtests/rival.py vw-ccb redis://127.0.0.1:6379

It answers `Recommend` and `Reward` for one bandit, and prints the port. It keeps no log, takes no snapshot, and learns
nothing again after a crash: what it costs is the least that such a service can cost.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import redis.asyncio as redis

from topk_bandit.lab.experiments.vowpal import VowpalCcb, VowpalSlates
from topk_bandit.lab.simulation.episodes import ProblemSize, Visit
from topk_bandit.lab.simulation.linear_thompson import LinearThompson
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1 import recommender_service_pb2_grpc as rpc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.lab.simulation.episodes import Player

POLICIES: Mapping[str, Callable[[ProblemSize, np.random.Generator], Player]] = {
    "vw-ccb": VowpalCcb.of,
    "vw-slates": VowpalSlates.of,
    "linear": LinearThompson.of,
}
KEEP_SECONDS = 3600
SIZE = ProblemSize(n_items=50, slate_size=6, context_dim=5, n_contexts=40)


class Rival(rpc.RecommenderServiceServicer):
    """The two calls of one bandit."""

    def __init__(self, player: Player, store: redis.Redis) -> None:
        self._player = player
        self._store = store
        self._items = np.arange(SIZE.n_items, dtype=np.int32)
        self._asked = 0

    async def Recommend(self, request: pb.RecommendRequest, _: Any) -> pb.RecommendResponse:  # noqa: N802, ANN401
        """Choose a slate, and keep it for its reward."""
        number, self._asked = self._asked, self._asked + 1
        ranking = self._player.choose(Visit(number, np.array(request.context), self._items))
        slate_id, items = uuid.uuid4().hex, [f"item-{item}" for item in ranking.tolist()]
        await self._store.set(slate_id, json.dumps({"number": number, "items": items}), ex=KEEP_SECONDS)
        return pb.RecommendResponse(recommendation_id=slate_id, item_ids=items)

    async def Reward(self, request: pb.RewardRequest, _: Any) -> pb.RewardResponse:  # noqa: N802, ANN401
        """Learn a reward once."""
        kept = await self._store.getdel(request.recommendation_id)
        if kept is None:
            return pb.RewardResponse(outcome=pb.REWARD_OUTCOME_DUPLICATE)
        self._player.observe(json.loads(kept)["number"], request.value)
        return pb.RewardResponse(outcome=pb.REWARD_OUTCOME_ACCEPTED)


async def serve(policy: str, url: str) -> None:
    """Serve until the process is ended."""
    server = grpc.aio.server()
    player = POLICIES[policy](SIZE, np.random.default_rng(1))
    rival = Rival(player, redis.from_url(url))  # type: ignore[abstract]  # the other calls are UNIMPLEMENTED
    rpc.add_RecommenderServiceServicer_to_server(rival, server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
