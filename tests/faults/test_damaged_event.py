"""An event of a log that was damaged at rest, and the operator's command that has it passed over."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.faults.service import COMMAND, clean_environment, serving
from tests.operations_page import check_shown
from tests.servers import running_server, valkey_binary
from tests.waiting import until

from topk_bandit.domain.bandits import BanditName
from topk_bandit.store.redis.keys import KeySpace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service
    from tests.servers import RunningServer

    from topk_bandit.client import Client

LOG = KeySpace("topk-bandit").bandit(BanditName("acme", "home")).log


def trade(client: Client, rounds: int) -> None:
    for number in range(rounds):
        client.reward("home", client.recommend("home").id, float(number % 3))


def flip(server: RunningServer, position: int) -> None:
    """Flip bits of an event that stands at rest."""
    with server.client() as client:
        written = client.xrange(LOG)
        client.delete(LOG)
        for entry_id, fields in written:
            event = fields[b"event"]
            if entry_id == b"%d-0" % position:
                event = bytes([event[0] ^ 1]) + event[1:]
            client.xadd(LOG, {**fields, b"event": event}, id=entry_id)


def skip(service: Service, *words: str) -> tuple[int, str]:
    ran = subprocess.run(
        [COMMAND, "events", "skip", "acme/home", *words, f"--address={service.address}"],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=False,
    )
    return ran.returncode, (ran.stdout or ran.stderr).strip()


def doctor(server: RunningServer) -> str:
    command = [COMMAND, "doctor", f"--redis-url={server.url}"]
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False).stdout


def test_a_service_learns_again_once_a_damaged_event_is_passed_over(tmp_path: Path) -> None:
    excused = "a log can't be followed"
    with running_server(valkey_binary(), config=["appendfsync always"]) as server:
        flags = (f"--redis-url={server.url}", "--workers=2")
        with serving(tmp_path / "one", *flags) as service, service.client(tenant="acme") as client:
            client.create_bandit("home", slate_size=2, item_capacity=9)
            client.upsert_items("home", [f"i{number}" for number in range(6)])
            trade(client, 12)
        flip(server, 20)
        with serving(tmp_path / "two", *flags, excused=excused) as service, service.client(tenant="acme") as client:
            slate = client.recommend("home")
            assert slate.items, "slates are chosen by what could be learned"
            client.reward("home", slate.id, 1.0)
            assert client.stats("home").damage == "event 20 does not match its checksum"
            assert "wrong learners: 1 stand still" in doctor(server)
            status, said = skip(service, "20", "--reason=a bit flipped")
            assert (status, "--yes" in said) == (1, True)
            status, said = skip(service, "19", "--reason=not that one", "--yes")
            assert status == 1
            assert (
                "event 19 can't be passed over, the learner of tenants/acme/bandits/home stands before event 20 and"
                in said
            )
            assert "does not match its checksum" in said
            status, said = skip(service, "20", "--reason=a bit flipped", "--yes")
            assert (status, said) == (0, "passed over event 20: learned up to 28 of 28 events")
            check_shown("events skip acme/home", said)
            trade(client, 3)
            assert client.stats("home").damage == ""
            assert "ok    learners: " in doctor(server)
            until(lambda: client.stats("home").observation_count == 15, what="rewards are learned again")
            assert client.verify("home").agrees
            page = client.export_events("home", start=20, limit=1)
            assert '"type":"event_skipped","reason":"a bit flipped"' in page.events[0].event_json
        with serving(tmp_path / "three", *flags) as service, service.client(tenant="acme") as client:
            trade(client, 1)
            until(lambda: client.stats("home").observation_count == 16, what="and after a start")
