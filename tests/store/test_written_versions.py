"""Whatever a newer program writes is in the data version in force: its own, or the one before."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis
from tests.servers import running_server, valkey_binary
from tests.waiting import PATIENCE

from topk_bandit.store.data_versions import NEWEST

ROOT = Path(__file__).parent.parent.parent
STAMP = re.compile(r'\\*"v\\*":(\d+)|tkbs\\x00\\x0(\d)')
"""The version in a document, also in one that is a text in another, and in a snapshot, as MONITOR shows them."""

KINDS = ("created", "items_changed", "recommended", "rewarded", "expired", "study_created", "design_restarted", "tkbs")


@pytest.mark.slow
@pytest.mark.parametrize("version", [NEWEST, NEWEST + 1])
def test_all_that_scripts_write_is_in_the_version_in_force(version: int) -> None:
    with running_server(valkey_binary(), append_only=False) as server, server.client() as client:
        written: list[str] = []

        def listen() -> None:
            for entry in monitor.listen():
                if entry["command"] == "ECHO end":
                    return
                if entry["client_type"] == "lua":
                    written.append(entry["command"])

        patient = redis.Redis(unix_socket_path=f"{server.folder}/socket", protocol=2, socket_timeout=None)
        with patient, patient.monitor() as monitor:
            listener = threading.Thread(target=listen)
            listener.start()
            writer = [sys.executable, "-m", "tests.store.next_writer", server.unix_url, str(version)]
            done = subprocess.run(writer, cwd=ROOT, check=False)
            client.echo("end")
            listener.join(PATIENCE)
            assert not listener.is_alive()
    assert done.returncode == 0
    text = "\n".join(written)
    assert all(kind in text for kind in KINDS)
    found = [int(stamp or framed) for stamp, framed in STAMP.findall(text)]
    assert len(found) > 100
    assert set(found) == {version}
