"""Commands as people run them anywhere: whatever is odd about it, what goes wrong is said, and without a traceback."""

from __future__ import annotations

import os
import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import COMMAND, clean_environment, serving
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE

from topk_bandit.client import categorical

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service

pytestmark = [pytest.mark.slow, pytest.mark.long_form]

RUNS = usual_or_long(20, long=500)
AT_ONCE = 20
"""So many runs make one test, so that several processors share them."""

SERVED = "ADDRESS"
"""Stands for where the service listens."""

ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "grpc_proxy": "http://127.0.0.1:9"},
    {"HOME": "", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": ""},
    {"HOME": "/dev/null/nowhere", "TERM": "dumb", "COLUMNS": "1"},
    {"TZ": "Pacific/Kiritimati", "COLUMNS": "20"},
]
ADDRESSES = [
    SERVED,
    SERVED,
    SERVED,
    "127.0.0.1:1",
    "nonsense",
    "host:99999",
    "[::1",
    "http://",
    "é:1",
    "http://127.0.0.1:1/x",
]
FILES = {
    "good.csv": "item_1,item_2,reward,country\ntee,kaffee,1,Österreich\n",
    "edges.csv": "item_1,item_2,reward,time\ntee,kaffee,1,0001-01-01T00:00:00+01:00\n",
    "far.jsonl": '{"items": ["tee", "kaffee"], "reward": 1, "time": "9999-12-31T23:59:59-05:00"}\n',
    "huge.jsonl": '{"items": ["tee", "kaffee"], "reward": 1e999, "time": 1e300}\n',
    "open.csv": 'item_1,item_2,reward\ntee,"kaffee,1\n',
    "empty.csv": "",
    "binary.csv": "\udcff\udcfe\x00",
    "größe.csv": "item_1,item_2,reward,größe\ntee,kaffee,1,5\n",
    "fake.parquet": "PAR1PAR1",
    "votes.soc": "# ALTERNATIVE NAME 1: tee\n# ALTERNATIVE NAME 2: kaffee\n2: 1,2\n",
    "log.dsjson": '{"_label_cost": -1, "c": {"_multi": [{}]}}\n',
    "items.csv": "item,größe\ntee,1\nkaffee,2\n",
    "bom.toml": "\ufeffworkers = 1\n",
    "keys.json": '\ufeff{"keys": []}',
}
BANDIT, STUDY = "shop/home", "shop/taste"
WORDS: list[list[str]] = [
    *([word] for word in ("--help", "--version", "status", "bandits", "nonsense", "ünknown")),
    *(["bandits", word, BANDIT] for word in ("get", "stats", "history")),
    *(["bandits", "get", name] for name in ("shop/absent", "ü/ü", "", "a/b/c", "shop/" + "x" * 300)),
    ["bandits", "list", "--tenant", "shop"],
    ["bandits", "create", "shop/made", "--slate-size", "2", "--item-capacity", "1_000"],
    ["bandits", "create", "shop/made", "--slate-size", "2", "--item-capacity", "9", "--reward-range", "0:1:2"],
    ["bandits", "create", "shop/made", "--slate-size", "2", "--item-capacity", "9", "--half-life", "1e308"],
    ["items", "list", BANDIT],
    ["items", "get", BANDIT, "größe"],
    ["tenants", "list"],
    ["events", "export", BANDIT],
    ["events", "tail", BANDIT, "--count", "1", "--from", "0"],
    ["replay", BANDIT],
    ["explain", BANDIT, "größe"],
    *(["import", BANDIT, name, *more] for name in FILES for more in ([], ["--check"], ["--skip-bad-rows"])),
    ["import", BANDIT, "log.dsjson", "--format", "vw-dsjson"],
    ["import", BANDIT, "good.csv", "--format", "obp"],
    ["import", BANDIT, "absent.csv"],
    ["import", BANDIT, "."],
    *(["study", "import", STUDY, name] for name in ("good.csv", "votes.soc", "empty.csv", "binary.csv")),
    *(["study", "ask", "--items", "items.csv", "--out", "out", "--count", text] for text in ("3", "100000000", "٣")),
    ["study", "learn", "--items", "items.csv", "--answers", "good.csv", "--out", "out"],
    ["study", "learn", "--items", "größe.csv", "--answers", "edges.csv", "--out", "/proc/out"],
    ["config"],
    ["config", "--config", "bom.toml"],
    ["config", "--workers", "٣"],
    *(["config", "--redis-url", f"redis://127.0.0.1:1/{database}"] for database in ("0", "99", "abc", "0/shop", "1/2")),
    ["keys", "list", "--keys-file", "keys.json"],
    ["keys", "list", "--keys-file", "binary.csv"],
    ["log", "replay", "binary.csv"],
    ["log", "diff", "empty.csv", "good.csv"],
    ["restore", "."],
    ["completion", "bash"],
    ["personalizer", BANDIT, "--listen", "nonsense"],
]
ASK_THE_SERVICE = {"status", "bandits", "items", "tenants", "events", "replay", "explain", "import", "restore"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data")) as running:
        with running.client(tenant="shop") as client:
            client.create_bandit(
                "home", slate_size=2, item_capacity=9, context_schema=[categorical("country", buckets=4)]
            )
            client.upsert_items("home", ["tee", "kaffee"])
            client.create_study("taste", {"tee": [1.0], "kaffee": [2.0]}, answer_kind="ranking", budget=1, list_size=2)
            client.wait_for_design("taste", timeout=PATIENCE)
        yield running


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode(errors="surrogateescape"))


def run(words: list[str], environment: dict[str, str], folder: Path, *, is_read: bool) -> tuple[int, str]:
    """Return the exit status of a command, and what it said of its errors."""
    stderr = folder / "stderr"
    with stderr.open("wb") as errors:
        began = subprocess.Popen(
            [COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=clean_environment(**environment),
        )
        assert began.stdout is not None
        if is_read:
            began.stdout.read()
        began.stdout.close()
        status = began.wait(PATIENCE)
    return status, stderr.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("part", range(RUNS // AT_ONCE))
def test_no_command_ends_in_a_traceback(service: Service, tmp_path: Path, part: int) -> None:
    chance = random.Random(part)
    write_files(tmp_path)
    for _ in range(AT_ONCE):
        words, environment = list(chance.choice(WORDS)), chance.choice(ENVIRONMENTS)
        is_read = chance.random() < 0.8
        if words[0] in ASK_THE_SERVICE or words[:2] == ["study", "import"]:
            # Who follows events waits for a service that is away.
            addresses = [SERVED] if "tail" in words else ADDRESSES
            words += ["--address", chance.choice(addresses).replace(SERVED, service.address), "--timeout", "5"]
        status, errors = run(words, environment, tmp_path, is_read=is_read)
        where = f"{environment} {words} {'' if is_read else '| true'}: {status}\n{errors}"
        assert "Traceback" not in errors, where
        assert status in {0, 1, 2, 141}, where
        assert status in {0, 141} or errors.strip() or "--check" in words or not is_read, where


def test_a_proxy_is_not_asked_for_a_service(service: Service, tmp_path: Path) -> None:
    proxies = ENVIRONMENTS[3]
    assert "http_proxy" in proxies
    status, errors = run(["status", "--address", service.address], proxies, tmp_path, is_read=True)
    assert (status, errors) == (0, ""), os.environ.get("no_proxy")
