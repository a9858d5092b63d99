"""Nobody reads what the service logs, on the real service."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.faults.service import clean_environment, until
from tests.servers import free_port

from topk_bandit.client import Client

if TYPE_CHECKING:
    from pathlib import Path

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
        Client(f"127.0.0.1:{port}", tenant="shop", timeout=20.0) as client,
    ):
        try:
            until(lambda: client.create_bandit("home", slate_size=2, item_capacity=9), what="it serves")
            for _ in range(CHANGES):
                client.upsert_items("home", ["a", "b", "c"])
            slate = client.recommend("home")
            assert client.reward("home", slate.id, 1.0).log_position > 0
            service.send_signal(signal.SIGTERM)
            assert service.wait(30) == 0
        finally:
            service.kill()
        assert service.stderr is not None
        lines = service.stderr.read().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines[:-1])  # the last one was cut off by the end
    assert len(lines) < CHANGES
