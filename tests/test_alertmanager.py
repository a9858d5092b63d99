"""A real Alertmanager with the configuration that is deployed: one fault of the store is one page."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.programs import find_program
from tests.servers import free_port
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parent.parent / "deploy"
RULES = (DEPLOY / "rules" / "topk-bandit.rules.yml").read_text(encoding="utf-8")
ALERTS = dict(re.findall(r"alert: (\w+)\n.*?severity: (\w+)", RULES, re.DOTALL))


class Alertmanager:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v2"

    def ask(self, path: str, body: Any = None) -> Any:  # noqa: ANN401 - what JSON may hold
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.loads(response.read() or b"null")

    def fire(self, job: str, *firing: str) -> None:
        labels = [{"alertname": name, "job": job, "severity": ALERTS[name]} for name in firing]
        self.ask("alerts", [{"labels": one} for one in labels])

    def shown(self, job: str) -> set[str]:
        """Return which alerts of a job page somebody."""
        shown = self.ask("alerts?inhibited=false&receiver=page")
        return {one["labels"]["alertname"] for one in shown if one["labels"]["job"] == job}

    def pages(self, *firing: str) -> set[str]:
        """Return which of some alerts page somebody while all of them fire.

        Alerts come to those that inhibit in their order: once a later one inhibits, all before it do.
        """
        self.fire("topk-bandit", *firing)
        self.fire("later", "TopkBanditStoreAway", "TopkBanditErrorsBurn")
        until(lambda: self.shown("later") == {"TopkBanditStoreAway"}, what="the later one inhibits")
        return self.shown("topk-bandit")


@contextmanager
def alertmanager(folder: Path) -> Iterator[Alertmanager]:
    port = free_port()
    command = [
        find_program("prometheus-alertmanager"),
        f"--config.file={DEPLOY / 'alertmanager.yml'}",
        f"--storage.path={folder}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    one = Alertmanager(port)
    try:
        until(lambda: one.ask("status"), what="it answers")
        yield one
    finally:
        process.kill()
        process.wait()


def names(short: str) -> list[str]:
    return [f"TopkBandit{name}" for name in short.split()]


@pytest.mark.parametrize(
    ("firing", "pages"),
    [
        ("StoreAway Degraded StoreFailing ErrorsBurn SlowBurn LogUnread", "StoreAway"),
        ("StoreReplaced Degraded StoreFailing", "StoreReplaced"),
        ("Down ErrorsBurn", "Down"),
        ("StoreFull Degraded ErrorsBurn NotDurable", "StoreFull"),
        ("LogReplaced EventsLost", "EventsLost"),
        ("ErrorsBurn SlowBurn Degraded", "ErrorsBurn SlowBurn Degraded"),
    ],
)
def test_one_fault_is_one_page(tmp_path: Path, firing: str, pages: str) -> None:
    with alertmanager(tmp_path) as one:
        assert one.pages(*names(firing)) == set(names(pages))


def test_each_alert_that_is_named_is_one_of_the_rules() -> None:
    text = (DEPLOY / "alertmanager.yml").read_text(encoding="utf-8")
    for names in re.findall(r"TopkBandit\(([^)]*)\)", text):
        for name in names.split("|"):
            assert any(re.fullmatch(f"TopkBandit{name}", alert) for alert in ALERTS), name
