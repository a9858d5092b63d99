"""Pages of a real server that forks its workers: gunicorn, with one page at a time and with greenlets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rpc.harness import RunningServer

pytestmark = pytest.mark.slow

# Made when the application is loaded, as most shops would.
APPLICATION = """
import os
from topk_bandit.client import Client, Outbox

client = Client(os.environ["SHOP_TARGET"], tenant="acme", fallback_timeout=200.0)
outbox = Outbox(os.environ["SHOP_OUTBOX"], client)
if os.environ.get("SHOP_CALLS_FIRST"):
    client.recommend("home")

def application(environ, start_response):
    slate = client.recommend("home", fallback=["a", "b"])
    outbox.reward("home", slate.id, 1.0)
    start_response("200 OK", [])
    return [f"{slate.source.value} {os.getpid()} {slate.id}".encode()]
"""


@contextmanager
def pages(folder: Path, target: str, *options: str, **variables: str) -> Iterator[str]:
    """Run the server; yield the address of its page."""
    (folder / "shop.py").write_text(APPLICATION, encoding="utf-8")
    environment = os.environ | variables | {"SHOP_TARGET": target, "SHOP_OUTBOX": str(folder / "outbox.db")}
    command = [sys.executable, "-m", "gunicorn", "--bind=127.0.0.1:0", *options, "shop:application"]
    log = folder / "log"
    with log.open("w") as lines, subprocess.Popen(command, cwd=folder, env=environment, stderr=lines) as process:
        try:
            until(lambda: "Booting worker" in log.read_text(), what="a worker is there")
            listening = re.search(r"Listening at: (http://\S+)", log.read_text())
            assert listening
            yield listening[1]
        finally:
            process.terminate()
            process.wait(PATIENCE)
    assert "Traceback" not in log.read_text(), log.read_text()


def page(address: str) -> list[str]:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        return str(answer.read(), "utf-8").split()


def rewarded(shop: RunningServer) -> set[str]:
    return {slate for loop in shop.shop.loops.values() for slate in loop.rewards}


def test_an_application_may_be_loaded_before_the_workers_are_forked(
    shop: RunningServer, target: str, tmp_path: Path
) -> None:
    options = ("--preload", "--workers=3")
    with pages(tmp_path, target, *options, SHOP_CALLS_FIRST="1") as address, ThreadPoolExecutor(6) as visitors:
        seen = list(visitors.map(page, [address] * 90))
        until(lambda: len(rewarded(shop)) == 90, what="all rewards are delivered")
    assert {source for source, _, _ in seen} == {"service"}
    assert {slate for _, _, slate in seen} == rewarded(shop)
    assert len({process for _, process, _ in seen}) > 1


def test_over_http_greenlets_wait_for_their_slates_side_by_side(shop: RunningServer, tmp_path: Path) -> None:
    options = ("--worker-class=gevent", "--workers=1")
    with pages(tmp_path, shop.open_http(), *options) as address, ThreadPoolExecutor(10) as visitors:
        assert page(address)[0] == "service"
        until(lambda: len(rewarded(shop)) == 1, what="its reward is delivered")
        before = shop.shop.calls.count("recommend")
        shop.close_gate()
        seen = visitors.map(page, [address] * 10)
        until(lambda: shop.shop.calls.count("recommend") == before + 10, what="ten calls are under way")
        shop.open_gate()
        assert {source for source, _, _ in seen} == {"service"}
        until(lambda: len(rewarded(shop)) == 11, what="all rewards are delivered")
