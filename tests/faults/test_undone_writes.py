"""A failover to a replica that lacks the newest writes, where a reward is acknowledged once a replica has it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.insisting import recorded, reward_of, rewarded
from tests.faults.lines import SlowLine
from tests.faults.service import serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import HOME, create, recommend, refused
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.v1 import bandit_service_pb2 as bpb
from topk_bandit.v1 import recommender_service_pb2 as rpb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import grpc
    from tests.servers import RunningServer

OPTIONS = (
    *("--appendfsync", "always", "--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1"),
    *("--min-replicas-max-lag", "3600", "--repl-timeout", "3600"),  # a replica that says nothing still counts as one
)


class Pair:
    """A primary, a replica behind a line of its own, and the address of whichever is the primary."""

    def __init__(self, primary: RunningServer, replica: RunningServer, between: SlowLine, front: SlowLine) -> None:
        self.primary = primary
        self._replica = replica
        self._between = between
        self._front = front

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._front.port}"

    def hold_back(self) -> None:
        """Let nothing more that is written reach the replica."""
        self._between.hold()

    def fail_over(self) -> None:
        """Promote the replica, and kill the primary, which comes back as a replica."""
        self._front.server_port = self._replica.port
        with self._replica.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        self.primary.kill()
        self.primary.start()
        with self.primary.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", self._replica.port)


@contextmanager
def running_pair() -> Iterator[Pair]:
    with (
        running_server(valkey_binary(), *OPTIONS) as primary,
        SlowLine(primary.port) as between,
        running_server(valkey_binary(), *OPTIONS, "--replicaof", "127.0.0.1", str(between.port)) as replica,
        SlowLine(primary.port) as front,
    ):
        yield Pair(primary, replica, between, front)


def stats(channel: grpc.Channel) -> bpb.BanditStats:
    return BanditServiceStub(channel).GetBanditStats(bpb.GetBanditStatsRequest(bandit=HOME), timeout=PATIENCE)


def test_what_a_failover_undoes_is_counted_and_was_never_an_acknowledged_reward(tmp_path: Path) -> None:
    with (
        running_pair() as pair,
        serving(tmp_path, f"--redis-url={pair.url}", "--durability=replicated:1") as service,
        channel_to(service.address) as channel,
    ):
        reward = RecommenderServiceStub(channel).Reward
        create(channel)
        kept = recommend(channel)
        acknowledged = reward(reward_of(kept, 1.0), timeout=PATIENCE)
        assert (acknowledged.durability, acknowledged.replica_count) == (rpb.DURABILITY_REPLICATED, 1)

        pair.hold_back()
        given = recommend(channel, request_id="given")
        assert given.recommendation_id
        assert not given.degraded
        waiting = reward.future(reward_of(given, 1.0), timeout=PATIENCE)
        until(lambda: stats(channel).observation_count == 2, what="the model has learned what no replica has")
        assert not waiting.done()
        pair.fail_over()

        assert waiting.exception() is not None, "it was not acknowledged"
        until(lambda: stats(channel).lost_event_count > 0, what="the loss is counted")
        told = stats(channel)
        assert (told.lost_event_count, told.lost_reward_count, told.observation_count) == (2, 1, 1)
        assert rewarded(channel, kept, 1.0) == rpb.REWARD_OUTCOME_DUPLICATE
        assert refused(reward, reward_of(given, 1.0)).code == "NOT_FOUND"
        # Asked for again it is recorded again, if nothing was learned meanwhile that it would be another one for.
        recorded(channel, "given")
        assert rewarded(channel, given, 1.0) in {rpb.REWARD_OUTCOME_ACCEPTED, rpb.REWARD_OUTCOME_DUPLICATE}
        assert stats(channel).observation_count == 2
