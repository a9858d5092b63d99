"""What one caller can cost another tenant: a customer's times alone and beside an attacker, in turns.

    python loadtests/attackers.py --seconds 3 --turns 2

The attacker sends one of the worst legal or illegal calls again and again without a pause, over HTTP, to the one worker
that serves both. Turns alternate, so that other load on the machine is in both figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import multiprocessing
import os
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from served import settings_in
from topk_bandit.client import Client
from topk_bandit.process import logs
from topk_bandit.process.settings import Address
from topk_bandit.process.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATIENCE_SECONDS = 30.0
FLOODED = "tenants/attacker/bandits/home"
SERVICES = "/topk_bandit.v1."


def calls() -> Mapping[str, tuple[str, bytes]]:
    """Return the path and the body of each call, by what it is."""
    slate = {"bandit": FLOODED}
    features = {f"f{number}": {"number": 1.0} for number in range(40)}
    bodies: dict[str, tuple[str, object]] = {
        "nothing": ("", None),
        "Recommend, the usual one": ("Recommend", slate),
        "Recommend with 4.2 million numbers": ("Recommend", {**slate, "context": [0] * 4_200_000}),
        "Recommend with 10,000 candidates": (
            "Recommend",
            {**slate, "candidateItemIds": [f"{number:0124}" for number in range(10_000)]},
        ),
        "Recommend with 26,000 numbers as texts": ("Recommend", {**slate, "context": ["0.5"] * 26_000}),
        "UpsertItems of 10,000 items with 40 features each": (
            "UpsertItems",
            {
                **slate,
                "items": [{"itemId": f"i{number}", "features": features} for number in range(10_000)],
            },
        ),
        "BatchRecommend of 100 slates": ("BatchRecommend", {**slate, "requests": [{}] * 100}),
        "BatchReward of 1,000 rewards": (
            "BatchReward",
            {**slate, "rewards": [{"recommendationId": f"{number:032x}", "value": 1.0} for number in range(1_000)]},
        ),
        "a text of 8 million letters": ("Recommend", {"bandit": "x" * 8_000_000}),
        "no JSON, 8 MB of brackets": ("Recommend", "[" * 8_000_000),
    }
    return {
        name: (
            f"{SERVICES}{'BanditService' if method == 'UpsertItems' else 'RecommenderService'}/{method}",
            body.encode() if isinstance(body, str) else json.dumps(body).encode(),
        )
        for name, (method, body) in bodies.items()
    }


def ask(address: str, path: str, body: bytes) -> int:
    """Send a call once, and return the status of its answer; 0 for none."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def attack(address: str, path: str, body: bytes) -> None:
    """Send one call without a pause until this process is ended."""
    while True:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
            while True:
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                connection.getresponse().read()


@contextmanager
def attacked(address: str, path: str, body: bytes) -> Iterator[None]:
    """Have a process of its own attack for a block."""
    attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(address, path, body), daemon=True)
    attacker.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        attacker.kill()
        attacker.join()


def waited(customer: Client, seconds: float) -> list[float]:
    """Return how many milliseconds each slate of a customer took, who waits 5 ms between two."""
    took, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        customer.recommend("home")
        took.append(1e3 * (time.perf_counter() - start))
        time.sleep(0.005)
    return took


def measure(address: str, *, seconds: float, turns: int) -> None:
    """Print a row of a table for each call."""
    print(
        "| call | body, MB | status | alone: p50, p99 | beside it: p50, p99 | p99, times |\n|---|---|---|---|---|---|"
    )
    for tenant in ("victim", "attacker"):
        with Client(f"http://{address}", tenant=tenant, timeout=PATIENCE_SECONDS) as client:
            client.create_bandit("home", slate_size=3, item_capacity=10_000)
            client.upsert_items("home", [f"item-{number}" for number in range(30)])
    with Client(f"http://{address}", tenant="victim", timeout=PATIENCE_SECONDS) as customer:
        waited(customer, seconds)
        for name, (path, body) in calls().items():
            alone, beside = list[float](), list[float]()
            for _ in range(turns):
                alone += waited(customer, seconds)
                if path.endswith("/"):
                    beside += waited(customer, seconds)
                else:
                    with attacked(address, path, body):
                        beside += waited(customer, seconds)
            (usual, usual_p99), (median, p99) = (np.percentile(one, [50, 99]) for one in (alone, beside))
            figures = f"{usual:.1f}, {usual_p99:.0f} | {median:.1f}, {p99:.0f} | {p99 / usual_p99:.1f}"
            status = "" if path.endswith("/") else ask(address, path, body)
            print(f"| {name} | {len(body) / 1e6:.2f} | {status} | {figures} |", flush=True)


def main() -> None:
    """Run the service, one worker on an embedded store, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each turn lasts (default: 3)")
    parser.add_argument("--turns", type=int, default=2, help="how many turns each call has (default: 2)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tkb-") as folder:
        settings = dataclasses.replace(settings_in(Path(folder)), http_listen=Address("127.0.0.1", 0))
        logs.configure("text", level="ERROR")
        with Supervisor(settings) as supervisor:
            print(f"load before: {os.getloadavg()[0]:.1f}")
            measure(str(supervisor.http_address), seconds=asked.seconds, turns=asked.turns)
            print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
