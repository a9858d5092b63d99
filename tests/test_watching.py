"""A real Prometheus looks at a real service: every query of a panel or rule has an answer, also after a restart."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.service import serving
from tests.programs import find_program
from tests.rpc.harness import channel_to
from tests.servers import free_port
from tests.waiting import PATIENCE, until

from topk_bandit.v1.recommender_service_pb2 import RecommendRequest
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc
    from tests.faults.service import Service

DEPLOY = Path(__file__).parent.parent / "deploy"
WAIT = timedelta(seconds=1)
HOUR = 3600.0
SERVING = ("--metrics-tenants=acme", "--store-timeout-seconds=60")
FEATURES = "exemplar-storage"
HELD = re.compile(r"\bfor: [0-9]+[smhd]\b")
COMPARISON = re.compile(r" (==|!=|<|>|<=|>=) (?!bool )")


class Prometheus:
    """A Prometheus with the configuration that is deployed, but for the names of machines and the pace."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - what JSON may hold
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=PATIENCE) as response:
            return json.load(response)["data"]

    def values(self, expression: str) -> list[float]:
        return [float(one["value"][1]) for one in self.ask("query", query=expression)["result"]]

    def rules(self) -> dict[str, str]:
        """Return the query of each rule; that of an alert says of its condition whether it holds, and not only when."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        return {
            rule["name"]: COMPARISON.sub(r" \1 bool ", rule["query"]) if rule["type"] == "alerting" else rule["query"]
            for rule in rules
        }

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        found = self.ask("query", query='ALERTS{alertstate="firing"}')["result"]
        return {one["metric"]["alertname"] for one in found}

    def durations(self) -> dict[str, float]:
        """Return for how many seconds the condition of each alert must hold before it fires."""
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        return {rule["name"]: float(rule["duration"]) for rule in rules if rule["type"] == "alerting"}

    def answers(self, query: str) -> bool:
        """Return whether a query has an answer, which is a number."""
        values = self.values(query)
        return bool(values) and not any(map(math.isnan, values))

    def wait_for_answers(self) -> None:
        for name, query in {**self.rules(), **panel_queries()}.items():
            until(lambda query=query: self.answers(query), what=f"an answer to {name}: {query}")


def panel_queries(*, with_exemplars: bool = False) -> dict[str, str]:
    """Return the query of each target of each panel, with Grafana's variables replaced; or of those with exemplars."""
    boards = [json.loads(path.read_text()) for path in sorted((DEPLOY / "grafana/dashboards").glob("*.json"))]
    queries = {
        f"{board['title']}: {panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "30s")
        for board in boards
        for panel in board["panels"]
        for target in panel.get("targets", [])
        if target.get("exemplar") or not with_exemplars
    }
    assert len(boards) == 3
    return {name: query.replace("$job", "topk-bandit") for name, query in queries.items()}


@contextlib.contextmanager
def watching(folder: Path, target: str, *, hold: str = "") -> Iterator[Prometheus]:
    """Run a Prometheus of its own, which remembers nothing, until the end of the block.

    With `hold`, such as "2s", each alert that waits for its condition to last waits for so long.
    """
    program = find_program("prometheus")
    shutil.copytree(DEPLOY / "rules", folder / "rules")
    if hold:
        rules = folder / "rules/topk-bandit.rules.yml"
        rules.write_text(HELD.sub(f"for: {hold}", rules.read_text()))
    config = (DEPLOY / "prometheus.yml").read_text().replace("topk-bandit:9464", target).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(config)
    port = free_port()
    options = (
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        "--log.level=error",
        f"--enable-feature={FEATURES}",
    )
    with (folder / "log").open("wb") as log:
        command = [program, *options, f"--web.listen-address=127.0.0.1:{port}"]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        prometheus = Prometheus(port)
        until(lambda: process.poll() is not None or 1.0 in prometheus.values("up"), what="Prometheus sees the service")
        assert process.poll() is None, (folder / "log").read_text()
        yield prometheus
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def trading(service: Service) -> Iterator[None]:
    """Let a shop ask for slates and post rewards, some of them late and some never, until the end of the block."""
    closed = threading.Event()
    shop = threading.Thread(target=trade, args=(service, closed))
    shop.start()
    try:
        yield
        assert shop.is_alive(), "the shop has failed"
    finally:
        closed.set()
        shop.join()


def trade(service: Service, closed: threading.Event) -> None:
    waiting: deque[tuple[float, str]] = deque()
    with service.client(timeout=PATIENCE) as client:
        client.create_bandit("home", slate_size=2, item_capacity=8, reward_wait=WAIT, default_reward=0.0)
        client.upsert_items("home", ["tea", "coffee", "cocoa", "milk"])
        number = 0
        while not closed.wait(0.02):
            number += 1
            slate = client.recommend("home")
            if number % 4 == 1:
                waiting.append((time.monotonic() + 2 * WAIT.total_seconds(), slate.id))
            elif number % 4 > 1:
                client.reward("home", slate.id, float("tea" in slate.items))
            while waiting and waiting[0][0] < time.monotonic():
                client.reward("home", waiting.popleft()[1], 1.0)


@pytest.mark.slow
def test_every_query_of_every_panel_and_rule_has_an_answer(tmp_path: Path) -> None:
    target = f"127.0.0.1:{free_port()}"
    folders = [tmp_path / name for name in ("data", "before", "after")]
    for folder in folders:
        folder.mkdir()
    with (
        serving(folders[0], "--workers=1", *SERVING, f"--metrics-listen={target}") as service,
        watching(folders[1], target) as prometheus,
    ):
        with trading(service):
            prometheus.wait_for_answers()
        os.kill(service.pid, signal.SIGTERM)
        assert service.wait() == 0
        service.start()
        # What a fresh one sees, the service has shown since its restart; the other sees all counters begin again.
        with watching(folders[2], target) as fresh, trading(service):
            fresh.wait_for_answers()
            prometheus.wait_for_answers()
            assert len(fresh.rules()) > 50
            assert len(panel_queries()) > 60


def exemplars(prometheus: Prometheus, expression: str) -> list[dict[str, str]]:
    """Return the labels of the exemplars of series, as a panel of Grafana would ask for them."""
    now = time.time()
    found = prometheus.ask("query_exemplars", query=expression, start=str(now - HOUR), end=str(now + HOUR))
    return [one["labels"] for series in found for one in series["exemplars"]]


@pytest.mark.slow
def test_exemplars_lead_from_latencies_and_rewards_to_slates(tmp_path: Path) -> None:
    target = f"127.0.0.1:{free_port()}"
    folders = [tmp_path / name for name in ("data", "watcher")]
    for folder in folders:
        folder.mkdir()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    shown: dict[str, tuple[str, ...]] = {}
    with (
        serving(folders[0], "--workers=2", *SERVING, f"--metrics-listen={target}") as service,
        watching(folders[1], target) as prometheus,
        service.client(timeout=PATIENCE) as client,
        channel_to(service.address) as channel,
    ):
        client.create_bandit("home", slate_size=2, item_capacity=8)
        client.upsert_items("home", ["tea", "coffee", "cocoa", "milk"])
        for _ in range(20):
            slate = client.recommend("home")
            shown[slate.id] = slate.items
            client.reward("home", slate.id, 1.0)
        traced = traced_slate(channel, trace)

        def of_calls() -> list[dict[str, str]]:
            return exemplars(prometheus, 'grpc_server_handling_seconds_bucket{grpc_method="Recommend"}')

        def of_rewards() -> list[dict[str, str]]:
            return exemplars(prometheus, "topk_bandit_reward_delay_seconds_bucket")

        # It is the newest of its bucket.
        until(lambda: {"recommendation_id": traced, "trace_id": trace} in of_calls(), what="the traced call")
        until(of_rewards, what="an exemplar of a reward")
        drawn = panel_queries(with_exemplars=True)
        assert len(drawn) == 2
        assert all(exemplars(prometheus, query) for query in drawn.values())
        for labels in of_calls():
            assert labels["recommendation_id"] in {*shown, traced}
            assert ("trace_id" in labels) == (labels["recommendation_id"] == traced)
        assert {labels["recommendation_id"] for labels in of_rewards()} <= shown.keys()
        # What is found leads on: the service says why that slate was shown.
        found = of_rewards()[0]["recommendation_id"]
        explained = client.explain("home", found)
        assert explained.recommendation.items == shown[found]
        assert exemplars(prometheus, 'grpc_server_handling_seconds_bucket{grpc_method="Reward"}') == []


def traced_slate(channel: grpc.Channel, trace: str) -> str:
    """Return the id of a slate that a caller asked for in a trace of its own."""
    told = (("traceparent", f"00-{trace}-00f067aa0ba902b7-01"),)
    request = RecommendRequest(bandit="tenants/shop/bandits/home")
    return RecommenderServiceStub(channel).Recommend(request, metadata=told, timeout=PATIENCE).recommendation_id


def test_a_condition_is_asked_for_as_a_number() -> None:
    asked = COMPARISON.sub(r" \1 bool ", 'a{job="x"} == 0 or (b > 1 and c < d)')
    assert asked == 'a{job="x"} == bool 0 or (b > bool 1 and c < bool d)'
