"""A shop that has curl and nothing else: the real service over HTTP, while it runs and while it stops."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.service import Service, serving
from tests.programs import find_program
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

README = Path(__file__).resolve().parents[2] / "README.md"
BANDIT = "tenants/shop/bandits/home"


@pytest.fixture(scope="module", autouse=True)
def needs_curl() -> None:
    find_program("curl")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data"), "--workers=2", "--drain-seconds=600") as running:
        yield running


def curl(service: Service, method: str, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the answer, of a call made with curl; 0 if there was none."""
    address = f"http://{service.http_address}/topk_bandit.v1.{method}"
    words = ["curl", "-s", "-m", str(PATIENCE), "-w", "\n%{http_code}", "-H", "Content-Type: application/json"]
    ended = subprocess.run([*words, "-d", json.dumps(message), address], capture_output=True, text=True, check=False)
    body, _, status = ended.stdout.rpartition("\n")
    return int(status or 0), json.loads(body) if body else {}


def test_a_shop_with_curl_alone(service: Service) -> None:
    bandit = {"name": BANDIT, "slateSize": 2, "itemCapacity": 10}
    assert curl(service, "BanditService/CreateBandit", {"bandit": bandit})[0] == 200
    items = [{"itemId": name} for name in ("tea", "coffee", "cocoa")]
    assert curl(service, "BanditService/UpsertItems", {"bandit": BANDIT, "items": items}) == (200, {"itemCount": 3})
    status, slate = curl(service, "RecommenderService/Recommend", {"bandit": BANDIT})
    assert (status, len(slate["itemIds"])) == (200, 2)
    reward = {"bandit": BANDIT, "recommendationId": slate["recommendationId"], "value": 1}
    assert curl(service, "RecommenderService/Reward", reward)[1]["outcome"] == "REWARD_OUTCOME_ACCEPTED"
    with service.client() as client:
        assert client.stats("home").observation_count == 1
    assert "RecommenderService" in service.page("/metrics")[1]


def test_the_commands_of_the_readme(service: Service) -> None:
    (block,) = re.findall(r"```sh\n(api=.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    script = block.replace("127.0.0.1:50080", service.http_address).replace("curl -H", "curl -sf -w '\\n' -H")
    ended = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, check=True)
    created, upserted, slate = map(json.loads, ended.stdout.splitlines())
    assert (created["bandit"]["slateSize"], upserted) == (2, {"itemCount": 3})
    assert len(slate["itemIds"]) == 2


def test_calls_over_http_end_before_the_service_does(service: Service) -> None:
    curl(service, "BanditService/CreateBandit", {"bandit": {"name": BANDIT, "slateSize": 2, "itemCapacity": 10}})
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(curl, service, "RecommenderService/Recommend", {"bandit": BANDIT}) for _ in range(60)]
        calls[5].result()
        service.running.send_signal(signal.SIGTERM)
        statuses = {call.result()[0] for call in calls}
    assert service.wait() == 0
    assert 200 in statuses
    assert statuses <= {200, 503, 0}  # 0: nothing listens any more
