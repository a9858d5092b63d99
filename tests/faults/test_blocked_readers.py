"""Whoever reads what the service tells of itself stops reading: calls go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.faults.service import clean_environment, serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import create, recommend
from tests.servers import free_port
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client

if TYPE_CHECKING:
    from pathlib import Path

STALLED = 40


CHANGES = 300
"""Each is a record of the audit log, and a pipe takes some 150 of them."""


def test_calls_go_on_and_the_service_ends_though_nobody_reads_its_log(tmp_path: Path) -> None:
    port = free_port()
    listeners = [f"--listen=127.0.0.1:{port}", "--http-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"]
    command = [sys.executable, "-m", "topk_bandit", "serve", *listeners, f"--data-dir={tmp_path}"]
    with (
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=clean_environment()
        ) as service,
        Client(f"127.0.0.1:{port}", tenant="shop", timeout=PATIENCE) as client,
    ):
        try:
            until(lambda: client.create_bandit("home", slate_size=2, item_capacity=9), what="it serves")
            for _ in range(CHANGES):
                client.upsert_items("home", ["a", "b", "c"])
            slate = client.recommend("home")
            assert client.reward("home", slate.id, 1.0).log_position > 0
            service.send_signal(signal.SIGTERM)
            assert service.wait(PATIENCE) == 0
        finally:
            service.kill()
        assert service.stderr is not None
        lines = service.stderr.read().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines[:-1])  # the last one was cut off by the end
    assert len(lines) < CHANGES


def test_scrapers_that_never_read_hold_up_no_call(folder: Path) -> None:
    with serving(folder) as service, channel_to(service.address) as channel:
        create(channel)
        ask = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n" * 50
        scrapers = [
            socket.create_connection(("127.0.0.1", service.metrics_port), timeout=PATIENCE) for _ in range(STALLED)
        ]
        try:
            for scraper in scrapers:
                scraper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                scraper.sendall(ask)
            for _ in range(20):
                assert not recommend(channel).degraded
            assert service.page("/metrics")[0] == 200
            service.until_ready()
        finally:
            for scraper in scrapers:
                scraper.close()
        os.kill(service.pid, signal.SIGTERM)
        assert service.wait() == 0


def test_spans_that_nobody_takes_hold_up_no_call(folder: Path) -> None:
    """The collector takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        with (
            serving(folder, "--traces", variables={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}) as service,
            channel_to(service.address) as channel,
        ):
            create(channel)
            for _ in range(300):
                assert not recommend(channel).degraded
            service.until_ready()
            os.kill(service.pid, signal.SIGTERM)
            assert service.wait() == 0
