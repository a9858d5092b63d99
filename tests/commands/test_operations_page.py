"""The commands of docs/operations.md: each is shown with what it prints, and what it prints has that shape."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faults.service import COMMAND, clean_environment, serving
from tests.long_forms import LONG
from tests.operations_page import COMMANDS, fits, shapes
from tests.servers import running_server, valkey_binary

from topk_bandit.commands.cli import main
from topk_bandit.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from tests.faults.service import Service
    from tests.operations_page import Shown

EXPLAINED_ID = "e49006cf37c15923466499af5fffe3b2"
KEY_ID = "5f0c1e2d"
STORE = "redis://localhost:6379/0"
DAMAGED = "/srv/topk-bandit"
ITEMS = [f"i{number}" for number in range(6)]

ELSEWHERE = {
    "serve ": "runs until it is stopped; below, and tests/faults/test_upgrade.py",
    "finalize-upgrade ": "shown as a program of a later data version has it; tests/faults/test_upgrade.py",
    f"doctor --redis-url {STORE}\nok    data version": "the same",
    "events skip ": "needs a damaged event; tests/faults/test_damaged_event.py",
}
"""What is not run here: how a command, or it and what it prints, begins, and where else it is run."""


def is_run_elsewhere(command: Shown) -> bool:
    printed = "\n".join([command.words, *(line for line in command.lines if line != "...")])
    return any(printed.startswith(start) for start in ELSEWHERE)


def test_each_command_is_shown_with_what_it_prints() -> None:
    silent = {"events export acme/home --out home.jsonl", "serve --console-listen 127.0.0.1:50091"}
    assert {one.words for one in COMMANDS if not one.lines} == silent
    assert len(COMMANDS) > 35
    assert sum(is_run_elsewhere(one) for one in COMMANDS) == 9


def test_shapes_are_compared() -> None:
    printed = ["name  count", "a1    7", "a2    -", "all of 9 are good"]
    for page in (["name  count", "b1    8", "all of 3 are good"], ["name  count", "..."], ["...", "all of 1 are good"]):
        assert fits(shapes(page), shapes(printed)), page
    for page in (["name  counts", "..."], ["name  count"], ["...", "all of 1 are bad"], ["a1  b  7", "..."], []):
        assert not fits(shapes(page), shapes(printed)), page
    event = '{"position":1,"event":{"v":1,"type":"rewarded"}}'
    assert fits(shapes(['{"position":9,"event":{...}}']), shapes([event]))
    assert not fits(shapes(['{"place":9}']), shapes([event]))


def flat(line: str) -> str:
    """Return a line of a log without what fills it up, and what only this machine or a setting makes it long with."""
    return re.sub(r"((?:settings|arithmetic)=).*", r"\1...", re.sub(r"\s+", " ", line))


@pytest.mark.long_form
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a start of the service takes more time than CI has")
def test_a_start_says_what_the_page_shows() -> None:
    (page,) = (one for one in COMMANDS if one.words.startswith("serve --log-format text"))
    folder = tempfile.mkdtemp(prefix="tkb-")
    words = shlex.split(page.words.replace(DAMAGED, folder))
    listeners = (f"--{listener}=127.0.0.1:0" for listener in ("listen", "http-listen", "metrics-listen"))
    printed = []
    with subprocess.Popen(
        [COMMAND, *words, *listeners], stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:
            printed.append(line.replace(folder, DAMAGED).strip())
            if " serving " in line or "topk-bandit: " in line:
                run.terminate()
                break
        run.stderr.read()
    shutil.rmtree(folder)
    printed = [line for line in printed if " compiles for this processor: " not in line]
    assert shapes([*map(flat, printed)]) == shapes([*map(flat, page.lines)])


def trade(service: Service) -> str:
    """Have acme and shop trade; return the id of a slate that was the best one found."""
    with service.client(tenant="shop") as client:
        client.create_bandit("home", slate_size=1, item_capacity=2)
        client.upsert_items("home", ["tea", "milk"])
    with service.client(tenant="acme") as client:
        client.create_study("taste", ["tea", "milk", "salt"], answer_kind="pair", budget=20)
        client.create_bandit("cart", slate_size=1, item_capacity=2)
        client.create_bandit("home", slate_size=2, item_capacity=9, context_dimension=2)
        client.upsert_items("home", ITEMS)
        position, best = 0, ""
        for number in range(20):
            slate = client.recommend("home", [1.0, number / 20], ITEMS[:5], f"r{number}", min_model_version=position)
            position = client.reward("home", slate.id, float(ITEMS.index(slate.items[0]))).log_position
            best = best if slate.explored else slate.id
        for _ in range(2):
            client.recommend("home", [1.0, 0.5])
        client.stats("home")
        client.wait_for_design("taste")
    return best


def damage(folder: Path) -> None:
    """Leave an embedded store's log in a folder, of which the first half is good."""
    with EmbeddedStore.start(folder) as store, redis.Redis.from_url(store.url) as client:
        for position in range(1, 121):
            client.xadd("log", {"event": "x" * 50}, id=f"{position}-0")
    (file,) = folder.glob("appendonlydir/*.incr.aof")
    written = bytearray(file.read_bytes())
    written[len(written) // 2] ^= 1
    file.write_bytes(written)


class Operator:
    """Runs the page's commands, with names of this machine in the place of the page's."""

    def __init__(self, service: Service, names: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        self._service = service
        self._names = names
        self._capsys = capsys
        self._restored = 0

    def prepare(self, words: str) -> None:
        """Do what the page says has happened before a command."""
        self._restored += words.startswith("restore ")
        with self._service.client(tenant="acme") as client:
            if words == "restore 2026-11-23" and self._restored == 1:
                client.delete_bandit("cart")
                client.delete_bandit("home")
                client.delete_study("taste")
                with self._service.client(tenant="shop") as other:
                    other.delete_bandit("home")
            elif "a byte of a file was changed" in words:
                file = Path("2026-11-23") / "acme+home.jsonl"
                file.write_bytes(file.read_bytes().replace(b"1", b"2", 1))
            elif words == "events export acme/home --out home.jsonl":
                client.recommend("home", [1.0, 0.5])  # else it would be the import that it was restored by

    def run(self, words: str) -> list[str]:
        """Return the lines that a command prints."""
        for ours, theirs in self._names.items():
            words = words.replace(ours, theirs)
        main(shlex.split(words, comments=True))
        captured = self._capsys.readouterr()
        lines = [*captured.out.splitlines(), *captured.err.splitlines()]
        if words.startswith("keys create"):
            self._names[KEY_ID] = lines[0].partition(".")[0]
        return [line.replace(self._names[DAMAGED], DAMAGED) for line in lines]


@pytest.mark.long_form
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a service, a store and forty commands take more time than CI has")
def test_what_is_shown_is_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damaged, wrong = Path(tempfile.mkdtemp(prefix="tkb-")), []
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, damaged)
        damage(damaged)
        service = stack.enter_context(serving(tmp_path / "data"))
        remote = stack.enter_context(running_server(valkey_binary()))
        monkeypatch.setenv("TOPK_BANDIT_ADDRESS", service.address)
        names = {EXPLAINED_ID: trade(service), STORE: remote.url, DAMAGED: str(damaged)}
        operator = Operator(service, names, capsys)
        capsys.readouterr()
        for command in COMMANDS:
            if is_run_elsewhere(command):
                continue
            operator.prepare(command.words)
            with monkeypatch.context() as variables:
                for name, value in command.variables.items():
                    variables.setenv(name, value)
                printed = operator.run(command.words)
            if not fits(shapes(command.lines), shapes(printed)):
                wrong.append("\n".join([f"$ topk-bandit {command.words}", *command.lines, "prints", *printed]))
    assert not wrong, "\n\n".join(wrong)
