"""What a slate and its reward cost in processor time, and what they earn: this service beside services around rivals.

All have the same shop, the same customers in the same order, the same calls over gRPC, and rewards that come ten
requests late. A rival is `rival.py`: its policy, and its slates joined with rewards in the same kind of store.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import grpc
import numpy as np

import peers
from figures import Bench, Chart, Curve, Figure, Outcome, mean_with_error
from machine import cpu_seconds
from played import played
from served import BANDIT, CALL_SECONDS, REWARD_DELAY, TENANT, ranking_of, settings_in, worker_pid
from topk_bandit.client import Client
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.environments import Shop
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.process import logs
from topk_bandit.process.settings import Settings
from topk_bandit.process.supervisor import Supervisor
from topk_bandit.store.embedded import EmbeddedStore
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1 import recommender_service_pb2_grpc as rpc

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["price"]

ROUNDS, SHOPS, STEP = 2_000, 4, 50
SERVICE, RIVALS = "topk-bandit", {"vw-ccb": "VW CCB", "vw-slates": "VW slates", "linear": "linear Thompson sampling"}
NAME = f"tenants/{TENANT}/bandits/{BANDIT}"


class Running(NamedTuple):
    """A service: where it listens, and the processes of its worker and its store."""

    address: str
    worker: int
    store: int


@dataclass
class Run:
    """What one service did in one shop: after each step, seconds of processor time and regret, both so far."""

    seconds: list[float] = field(default_factory=list)
    store_seconds: list[float] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)

    def cost_of_a_pair(self, seconds: list[float]) -> float:
        """Return milliseconds of a Recommend and its Reward over the second half."""
        half = len(seconds) // 2
        return 1e3 * (seconds[-1] - seconds[half]) / (STEP * (len(seconds) - 1 - half))

    def late_regret(self) -> float:
        """Return the mean regret of a round over the last quarter, of that of random slates."""
        quarter = 3 * len(self.regret) // 4
        return (self.regret[-1] - self.regret[quarter]) / (STEP * (len(self.regret) - 1 - quarter))


def price(bench: Bench) -> Outcome:
    """Play the same shops on this service and on services around rivals, in turns."""
    logs.configure("text", level="ERROR")
    rounds, shops, absent = bench.scaled(ROUNDS, 200), bench.scaled(SHOPS, 1), peers.absent(peers.VOWPAL_WABBIT)
    names = [SERVICE, *(name for name in RIVALS if not (absent and name.startswith("vw")))]
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(shops):
        for name in names:
            runs[name].append(_play(name, np.random.default_rng(number), rounds))
            bench.report(sum(map(len, runs.values())), shops * len(names))
    figures = [figure for name in names for figure in _figures(name, runs[name])]
    chart = Chart(
        "Regret by processor time",
        "processor time of worker and store (s)",
        "regret so far (random slates: 1 a round)",
        [
            Curve(
                RIVALS.get(name, name),
                np.mean([np.add(one.seconds, one.store_seconds) for one in runs[name]], axis=0).tolist(),
                np.mean([one.regret for one in runs[name]], axis=0).tolist(),
            )
            for name in names
        ],
    )
    settings: dict[str, object] = {
        "n": 50,
        "k": 6,
        "C": 5,
        "rounds": rounds,
        "shops": shops,
        "reward_delay": REWARD_DELAY,
    }
    return Outcome([*figures, *_parts(bench.scaled(200, 20))], settings, absent, charts=[chart])


def _figures(name: str, runs: list[Run]) -> Iterator[Figure]:
    key, label = name.replace("-", "_"), RIVALS.get(name, name)
    worker = [one.cost_of_a_pair(one.seconds) for one in runs]
    store = [one.cost_of_a_pair(one.store_seconds) for one in runs]
    yield mean_with_error(f"{key}_worker", f"{label}: worker's CPU of a pair", worker, unit="ms")
    yield mean_with_error(f"{key}_store", f"{label}: store's CPU of a pair", store, unit="ms")
    yield Figure(f"{key}_rate", f"{label}: pairs a second of a worker's core", 1e3 / float(np.mean(worker)), "/s")
    yield mean_with_error(f"{key}_regret", f"{label}: late regret, of random", [one.late_regret() for one in runs])


def _parts(count: int) -> Iterator[Figure]:
    """Yield what the decision and the learning of a pair take without a service, of a bandit like the one served."""
    shop, rng = Shop.random(np.random.default_rng(0)), np.random.default_rng(1)
    bandit, items = played(shop, rng, rewards=256, pending=REWARD_DELAY), np.arange(len(shop.items), dtype=np.int32)
    deciding, learning = 0.0, 0.0
    for customer in rng.integers(len(shop.customers), size=count).tolist():
        began = time.process_time()
        decision = decide(
            bandit.state, Settings().default_exploration, context=shop.customers[customer], eligible=items, rng=rng
        )
        decided = time.process_time()
        bandit.show(shop, customer, decision.ranking)
        bandit.reward(shop, rng)
        deciding, learning = deciding + decided - began, learning + time.process_time() - decided
    yield Figure("decision", f"of {SERVICE}'s: the decision", 1e3 * deciding / count, "ms")
    yield Figure("learning", f"of {SERVICE}'s: learning a slate and its reward", 1e3 * learning / count, "ms")


@contextmanager
def _running(name: str) -> Iterator[Running]:
    """Run a service, with one worker and a store of its own."""
    with tempfile.TemporaryDirectory(prefix="topk-bandit-bench-") as folder, EmbeddedStore.start(Path(folder)) as store:
        if name != SERVICE:
            command = [sys.executable, str(Path(__file__).with_name("rival.py")), name, store.url]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rival:
                try:
                    yield Running(f"127.0.0.1:{_line_of(rival)}", rival.pid, store.pid)
                finally:
                    rival.kill()
            return
        with Supervisor(settings_in(Path(folder) / "own", redis_url=store.url)) as supervisor:
            with Client(supervisor.address, tenant=TENANT, timeout=CALL_SECONDS) as client:
                client.create_bandit(BANDIT, slate_size=6, context_dimension=5, item_capacity=50)
                client.upsert_items(BANDIT, [f"item-{index}" for index in range(50)])
            yield Running(supervisor.address, worker_pid(), store.pid)


def _line_of(process: subprocess.Popen[str]) -> str:
    return "" if process.stdout is None else process.stdout.readline().strip()


def _play(name: str, rng: np.random.Generator, rounds: int) -> Run:
    """Serve a shop's customers for so many rounds, each a slate and the reward of an earlier one."""
    shop, run, regret = Shop.random(rng), Run(), 0.0
    of_random = _regret_of_random(shop, rng)
    waiting: deque[tuple[str, float]] = deque()
    with _running(name) as service, grpc.insecure_channel(service.address) as channel:
        stub = rpc.RecommenderServiceStub(channel)
        for number in range(rounds + 1):
            if number % STEP == 0:
                run.seconds.append(cpu_seconds(service.worker))
                run.store_seconds.append(cpu_seconds(service.store))
                run.regret.append(regret / of_random)
            customer = int(rng.integers(len(shop.customers)))
            asked = pb.RecommendRequest(bandit=NAME, context=shop.customers[customer].tolist())
            slate = stub.Recommend(asked, timeout=CALL_SECONDS)
            ranking = ranking_of(tuple(slate.item_ids))
            waiting.append((slate.recommendation_id, shop.draw(customer, ranking, rng)))
            regret += shop.best(customer) - float(shop.expect_rewards(customer, ranking[None])[0])
            if len(waiting) > REWARD_DELAY:
                slate_id, value = waiting.popleft()
                stub.Reward(
                    pb.RewardRequest(bandit=NAME, recommendation_id=slate_id, value=value), timeout=CALL_SECONDS
                )
    base, of_store = run.seconds[0], run.store_seconds[0]
    return Run([one - base for one in run.seconds], [one - of_store for one in run.store_seconds], run.regret)


def _regret_of_random(shop: Shop, rng: np.random.Generator) -> float:
    """Return the mean regret of slates drawn uniformly."""
    count, (n_items, _) = 500, shop.items.shape
    slates = random_rankings(np.arange(n_items), slate_size=shop.slate_size, count=count, rng=rng)
    customers = rng.integers(len(shop.customers), size=count).tolist()
    regrets = [
        shop.best(one) - float(shop.expect_rewards(one, slate[None])[0])
        for one, slate in zip(customers, slates, strict=True)
    ]
    return float(np.mean(regrets))
