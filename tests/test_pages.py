"""The tutorial and the pages about moving in, run from their own text."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.examples.patient import PATIENT_CLIENTS, WITHOUT_CHANCE
from tests.faults.service import COMMAND, Service, clean_environment, serving
from tests.waiting import PATIENCE

from topk_bandit.client import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parent.parent / "docs"
PYTHON = (sys.executable, "-W", "error", "-c")
GRPC, HTTP, METRICS = "127.0.0.1:50051", "127.0.0.1:50080", "127.0.0.1:9464"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Service]:
    with serving(data, *WITHOUT_CHANCE) as service:
        yield service


def run_page(name: str, service: Service, folder: Path, data: Path) -> str:
    """Run the blocks of a page in their order; return what they print."""
    text = (DOCS / name).read_text(encoding="utf-8").replace(GRPC, service.address)
    text = text.replace(HTTP, service.http_address).replace(METRICS, f"127.0.0.1:{service.metrics_port}")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    environment = clean_environment(
        TOPK_BANDIT_ADDRESS=service.address,
        TOPK_BANDIT_DATA_DIR=str(data),
        TOPK_BANDIT_STORE_TIMEOUT_SECONDS="60",
        PYTHONUTF8="1",
    )
    environment["PATH"] = f"{Path(COMMAND).parent}:{environment['PATH']}"
    printed = []
    for kind, block in blocks:
        command = ["/bin/sh", "-ec", block] if kind == "sh" else [*PYTHON, PATIENT_CLIENTS + block]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment
        )
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        printed.append(done.stdout)
    assert blocks
    return "\n".join(printed)


@pytest.mark.slow
def test_decisions_of_vw_are_imported(service: Service, data: Path, tmp_path: Path) -> None:
    printed = run_page("from-vw.md", service, tmp_path, data)
    assert "2 rows imported, 0 left out" in printed
    with service.client(tenant="shop", timeout=PATIENCE) as client:
        stats = client.stats("from-vw")
        assert (stats.imported_count, stats.mean_reward) == (2, 0.75)


@pytest.mark.slow
def test_a_ranking_is_what_a_bandit_begins_with(tmp_path: Path) -> None:
    """With its shares of exploration: without them one bandit in twenty never shows juice, which nobody ordered."""
    data, folder = tmp_path / "data", tmp_path / "folder"
    folder.mkdir()
    with serving(data) as service:
        printed = run_page("from-linear-ranking.md", service, folder, data)
    [first, later] = (part.strip().splitlines()[:5] for part in re.split(r"it begins with:|later ones:", printed)[1:])
    assert first == ["('tea', 'coffee', 'cocoa')"]
    assert sum("tea" in slate and "juice" in slate for slate in later) >= 2
    assert "3 rows imported, 0 left out" in printed
    assert "tea,coffee,cocoa" in printed.replace(", ", ",")


@pytest.mark.slow
def test_each_recipe_for_rewards_is_taken(service: Service, data: Path, tmp_path: Path) -> None:
    """Each reward and each correction is accepted, but for the batch that the page posts twice."""
    printed = run_page("recipes.md", service, tmp_path, data)
    posts = len(re.findall(r"^call (?!Batch)", (DOCS / "recipes.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert posts > 10
    assert printed.count('"outcome":"REWARD_OUTCOME_ACCEPTED"') == posts + 1
    assert "REWARD_OUTCOME_DUPLICATE" not in printed
    assert "posted: accepted accepted accepted accepted\nposted: duplicate duplicate duplicate duplicate" in printed
    with service.client(tenant="shop", timeout=PATIENCE) as client:
        assert client.stats("minutes").recommendation_count == 2
        assert client.get_bandit("orders").provisional_after == timedelta(minutes=30)


@pytest.mark.slow
def test_a_running_shop_has_its_lift_on_screen(service: Service, data: Path, tmp_path: Path) -> None:
    printed = run_page("stages.md", service, tmp_path, data)
    assert re.search(r"in shadow: \d+ of 5\d as shown, gain Interval", printed)
    [(verdict, drawn, of)] = re.findall(r"lift: ([a-z ]+), .* (\d+) of (\d+) held back", printed)
    assert (verdict, of) == ("better", "1500")
    assert 100 < int(drawn) < 200
    assert re.search(r"^lift.verdict +better$", printed, flags=re.MULTILINE)
    assert "It earns more than the control group, decided." in printed
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with service.client(tenant="shop", timeout=PATIENCE) as client:
        assert client.get_bandit("front").guardrail_margin == 0.05
        assert client.recommend("front", baseline=["tea", "coffee", "milk"]).stage is Stage.OFF


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(service: Service, data: Path, tmp_path: Path) -> None:
    printed = run_page("tutorial.md", service, tmp_path, data)
    assert "REWARD_OUTCOME_ACCEPTED" in printed
    [(first, last)] = re.findall(r"first 30 slates: (\S+) each; last 30: (\S+)", printed)
    assert float(last) > float(first) + 0.1
    [accepted] = re.findall(r'^topk_bandit_rewards_total{outcome="accepted"} (\S+)$', printed, flags=re.MULTILINE)
    assert float(accepted) >= 301
    assert "always coffee,cocoa,tea" in printed
    slates = re.findall(r"a first slate: (.*)", printed)
    assert sum("cocoa" in slate and "juice" in slate for slate in slates) >= 3
