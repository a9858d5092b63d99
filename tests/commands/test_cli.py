"""The command as a person meets it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import fields
from functools import partial
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.service import COMMAND, clean_environment, commands
from tests.servers import running_server, valkey_binary
from tests.store.proxy import lossy_proxy
from tests.waiting import PATIENCE

from topk_bandit.__main__ import main as program
from topk_bandit.commands import doctor
from topk_bandit.commands.cli import main
from topk_bandit.process.settings import Settings
from topk_bandit.store.redis import waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    Run = Callable[..., CompletedProcess[str]]

LONG_STORE_CALLS = "--store-timeout-seconds=60"
SETTINGS = [declared.name for declared in fields(Settings)]


def run_process(*words: str, command: tuple[str, ...] = (COMMAND,), **variables: str) -> CompletedProcess[str]:
    return subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
        env=clean_environment(COLUMNS="200", **variables),
    )


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_help_names_every_setting_its_variable_and_its_default(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    help_text = " ".join(done.stdout.split())  # wherever a line ends
    for name in [*SETTINGS, "config"]:
        assert f"--{name.replace('_', '-')} " in help_text
        assert f"environment: TOPK_BANDIT_{name.upper()})" in help_text
    assert done.stdout.count("default: ") == len(SETTINGS)


def asks_a_service(*words: str) -> bool:
    """Return whether a command, or the first of its words, has a service's address."""
    help_text = StringIO()
    with redirect_stdout(help_text), pytest.raises(SystemExit):
        main([*words, "--help"])
    under = re.search(r"\n  WORD\n +(\w+)", help_text.getvalue())
    return asks_a_service(*words, under[1]) if under else "--address" in help_text.getvalue()


def test_help_says_what_there_is_to_do(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    _, _, listed = done.stdout.partition("\n  COMMAND\n")
    named = re.findall(r"^    (\w+)\s+\w", listed, re.MULTILINE)
    assert {"serve", "doctor", "demo", "keys", "study", "experiment", "log", "explain", "replay"} < set(named)
    assert len(named) == len(set(named))
    # Once each: no text beside the list has it all again.
    assert [name for name in named if re.search(rf"(topk-bandit|^ *) {name} ", done.stdout.replace(listed, ""))] == []
    assert "import, and the commands from explain on, ask a service that runs" in done.stdout
    asking = ["import", *named[named.index("explain") :]]
    assert [name for name in named if asks_a_service(name)] == asking
    demo = run("demo", "--help").stdout
    assert "--rounds" in demo
    assert "--seed" in demo


@pytest.mark.parametrize("command", [(COMMAND,), (sys.executable, "-m", "topk_bandit")])
def test_the_version_is_the_distribution_s(command: tuple[str, ...]) -> None:
    done = run_process("--version", command=command)
    assert (done.returncode, done.stdout) == (0, f"topk-bandit {version('topk-bandit')}\n")


@pytest.mark.parametrize(
    "words", [(), ("serve", "--colour=red"), ("serve", "word"), ("sell",), ("demo", "--rounds=many"), ("--workers=2",)]
)
def test_a_wrong_call_is_reported_and_exits_with_2(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: topk-bandit")
    assert "error: " in done.stderr


@pytest.mark.parametrize(
    ("words", "variables", "problem"),
    [
        (["serve", "--workers=0"], {}, "workers (from flag --workers): 0 is not between 1 and 256"),
        (["serve"], {"TOPK_BANDIT_FSYNC": "sometimes"}, "fsync (from variable TOPK_BANDIT_FSYNC): 'sometimes' is none"),
        (["serve"], {"TOPK_BANDIT_WORKER": "2"}, "variable TOPK_BANDIT_WORKER is no setting; did you mean"),
        (["serve", "--redis-url=http://x"], {}, "redis_url (from flag --redis-url): "),
        (["serve", "--config=/nowhere.toml"], {}, "config file /nowhere.toml can't be read"),
        (["serve", "--listen=0.0.0.0:1"], {}, "listen: 0.0.0.0:1 can be reached from other machines, which needs keys"),
        (["serve", "--http-listen=[::]:1"], {}, "http_listen: [::]:1 can be reached from other machines"),
        (["serve", "--keys-file=/nowhere"], {}, "keys_file (from flag --keys-file): '/nowhere' is not a file"),
        (["serve", f"--keys-file={__file__}"], {}, f"keys_file: {__file__}: is not JSON"),
        (["doctor", "--listen=nowhere"], {}, "listen (from flag --listen): 'nowhere' is not host:port"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_and_exits_with_1(
    run: Run, words: list[str], variables: dict[str, str], problem: str
) -> None:
    done = run(*words, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"topk-bandit: {problem}")
    assert done.stderr.count("\n") == 1


def test_a_file_gives_settings_and_flags_go_before(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('workers = 3\nlisten = "127.0.0.1:7"\nuniform_share = 2.0\n')
    done = run("serve", f"--config={file}")
    assert done.stderr.startswith(f"topk-bandit: uniform_share (from {file}, key uniform_share): 2 is not between")


def leftovers(folder: Path) -> list[str]:
    """Return what is in a folder for temporary files, without what belongs to no run of ours."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("topk-bandit"))


def processes_of(folder: Path) -> list[str]:
    return [line for line in commands() if str(folder) in line]


@pytest.fixture
def examine(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Has the doctor look, for whom this machine may be as slow as it likes."""
    monkeypatch.setattr(doctor, "_LONGEST_WRITE_SECONDS", PATIENCE)
    return partial(run, "doctor", LONG_STORE_CALLS)


@pytest.mark.slow
def test_the_doctor_finds_a_good_store_well(examine: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    embedded = examine("--log-format=text")
    assert (embedded.returncode, embedded.stderr) == (0, "")
    assert "valkey" in embedded.stdout
    assert "sample decision: 6 of 50 items" in embedded.stdout
    assert re.search(r"data folder: .* GiB free, a write is on the disk after \d", embedded.stdout)
    assert "compiled code: kept " in embedded.stdout
    assert "access: everybody may do everything, plain text, no stranger" in embedded.stdout
    assert re.search(r"memory: models of all workers may take 6144 of \d+ MiB", embedded.stdout)
    assert "writes: " not in embedded.stdout  # the store that is tried is on another disk than the service's own
    assert re.search(r"All \d+ checks passed\.", embedded.stdout)
    assert "data version: none yet, so that the first service begins with" in embedded.stdout
    assert leftovers(tmp_path) == []
    assert processes_of(tmp_path) == []
    with running_server(valkey_binary()) as server:
        given = examine(f"--redis-url={server.url}", f"--cold-log-dir={tmp_path}")
        assert given.returncode == 0, given.stdout
        assert f"cold log: {tmp_path}" in given.stdout
        nowhere = examine(f"--redis-url={server.url}", f"--cold-log-dir={tmp_path / 'none'}")
        assert nowhere.returncode == 1
        assert f"cold log: {tmp_path / 'none'} can't be written: No such file or directory" in nowhere.stdout
        assert re.search(r"writes: acknowledged after [\d.]+ ms, .* memory is awaited", given.stdout)
        with server.client() as client:
            assert client.dbsize() == 0


@pytest.mark.slow
def test_the_doctor_does_not_take_a_slow_way_to_the_store_for_a_wrong_clock(
    examine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = doctor.RedisStore.connect

    async def connect_late(*given: Any, **named: Any) -> doctor.RedisStore:  # noqa: ANN401
        await asyncio.sleep(0.5)
        return await connect(*given, **named)

    monkeypatch.setattr(doctor.RedisStore, "connect", connect_late)
    monkeypatch.setattr(doctor, "LARGEST_CLOCK_DIFFERENCE_SECONDS", 0.1)
    with running_server(valkey_binary()) as server:
        done = examine(f"--redis-url={server.url}")
    assert (done.returncode, "synchronise" in done.stdout) == (0, False), done.stdout


@pytest.mark.slow
def test_the_doctor_names_what_is_wrong(examine: Run, tmp_path: Path) -> None:
    with running_server(valkey_binary(), append_only=False, config=["maxmemory-policy allkeys-lru"]) as server:
        done = examine(f"--redis-url={server.url}")
    assert done.returncode == 1
    assert "set appendonly to yes" in done.stdout
    assert "set it to noeviction" in done.stdout
    assert re.search(r"1 of \d+ checks failed\.", done.stdout)
    away = examine(f"--redis-url={server.url}", "--store-timeout-seconds=0.2")
    assert away.returncode == 1
    assert "store: can't be examined" in away.stdout
    with running_server(valkey_binary()) as server:
        barred = examine(f"--redis-url={server.url_of_a_user('+@all', 'allkeys', 'allchannels', '-xadd')}")
    assert barred.returncode == 1
    assert "The store's user may not run xadd on what begins with topk-bandit: let it" in barred.stdout
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("shop = 1\n")
    large = ("--worker-memory-mib=16777216", f"--quotas-file={quotas}")
    crowded = examine(f"--workers={(os.cpu_count() or 1) + 1}", *large)
    assert crowded.returncode == 1
    assert "lower --workers" in crowded.stdout
    assert "less than --worker-memory-mib 16777216 says" in crowded.stdout
    assert "shop is no table; write [shop], and its quotas below" in crowded.stdout
    exposed = examine("--listen=0.0.0.0:1")
    assert exposed.returncode == 1
    assert "listen: 0.0.0.0:1 can be reached from other machines" in exposed.stdout


@pytest.mark.slow
def test_the_doctor_names_a_folder_that_cannot_be_written_and_a_store_that_is_almost_full(
    examine: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    barred = examine(f"--data-dir={tmp_path / 'file'}")
    assert barred.returncode == 1
    assert "choose another --data-dir" in barred.stdout
    with running_server(valkey_binary()) as server, server.client() as client:
        remote = examine(f"--redis-url={server.url}")
        assert re.search(r"store memory: \d+ of \d+ MiB, \d+% free", remote.stdout)
        assert "data folder" not in remote.stdout  # nothing is written here
        client.set("large", bytes(8 << 20))
        client.config_set("maxmemory", 10 << 20)
        full = examine(f"--redis-url={server.url}")
    assert full.returncode == 1
    assert "raise maxmemory, or delete bandits" in full.stdout


def written_after(printed: str) -> tuple[float, float]:
    """Return the median and the longest time of a write that the doctor tells, in milliseconds."""
    found = re.search(r"writes: acknowledged after ([\d.]+) ms, the slowest of 5 after ([\d.]+) ms, fsync", printed)
    assert found, printed
    return float(found[1]), float(found[2])


@pytest.mark.slow
def test_the_doctor_tells_how_long_a_write_takes_from_here_and_leaves_nothing_behind(run: Run) -> None:
    async def scenario() -> None:
        with running_server(valkey_binary(), config=["appendfsync always"]) as server, server.client() as client:
            async with lossy_proxy(server.port) as proxy:
                proxy.delay_seconds = 0.12
                far = ("--durability=fsync", f"--redis-url=redis://127.0.0.1:{proxy.port}", LONG_STORE_CALLS)
                done = await asyncio.to_thread(run, "doctor", *far)
            assert client.dbsize() == 0
            assert client.info("commandstats")["cmdstat_hset"]["calls"] >= 5
        median, worst = written_after(done.stdout)
        assert 120.0 <= median <= worst
        assert done.returncode == 1
        assert "each reward waits for that: look at the way to the store and its disk" in done.stdout

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_doctor_tells_that_no_write_is_acknowledged(examine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "WAIT_SHARE", 0.005)  # no replica comes, and the answer has all the time there is
    with running_server(valkey_binary(), config=["appendfsync always"]) as server, server.client() as client:
        done = examine("--durability=replicated:1", f"--redis-url={server.url}")
        assert client.dbsize() == 0
    assert done.returncode == 1
    assert "writes: not acknowledged, replicated:1 is awaited" in done.stdout
    assert "rewards are refused: written, but only 0 of 1 replicas have it in time" in done.stdout


@pytest.mark.slow
def test_there_is_nothing_to_finalize_in_a_store_that_nobody_used(run: Run, tmp_path: Path) -> None:
    with running_server(valkey_binary()) as server:
        unused = run("finalize-upgrade", f"--redis-url={server.url}", LONG_STORE_CALLS)
        assert (unused.returncode, unused.stdout) == (1, "")
        assert "no service has used this store and key prefix yet" in unused.stderr
        with server.client() as client:
            assert client.dbsize() == 0
    nowhere = run("finalize-upgrade", f"--data-dir={tmp_path}")
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert f"there is no store in {tmp_path}" in nowhere.stderr


@pytest.mark.slow
def test_the_doctor_hides_the_password(examine: Run) -> None:
    with running_server(valkey_binary(), password="opensesame") as server:
        url = server.url.replace("//", "//:opensesame@")
        done = examine(TOPK_BANDIT_REDIS_URL=url)
        assert done.returncode == 0, done.stdout
        assert "opensesame" not in done.stdout + done.stderr
        wrong = examine(TOPK_BANDIT_REDIS_URL=url.replace("sesame", "simsim"))
        assert wrong.returncode == 1
        assert "opensimsim" not in wrong.stdout + wrong.stderr


@pytest.mark.slow
def test_the_demo_shows_what_it_learns_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run_process("demo", "--rounds=30", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "request 30 of 30" in done.stdout
    assert re.search(r"its regret was \d+% of the random policy's", done.stdout)
    assert "and expects a reward of" in done.stdout
    assert leftovers(tmp_path) == []
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_one_round_is_a_demo_too() -> None:
    done = run_process("demo", "--rounds=1", "--seed=3")
    assert (done.returncode, done.stderr) == (0, "")


def test_config_print_tells_each_setting_and_where_it_came_from_and_no_secret(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('workers = 3\nredis_url = "rediss://me:hush@example.org"\n')
    variables = {"TOPK_BANDIT_CONFIG": str(file), "TOPK_BANDIT_FSYNC": "everysec"}
    done = run("config", "print", "--drain-seconds", "2.5", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    titles, *lines = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    assert titles == ["setting", "value", "from"]
    assert [line[0] for line in lines] == SETTINGS
    settings = {line[0]: tuple(line[1:]) for line in lines}
    assert settings["workers"] == ("3", f"{file}, key workers")
    assert settings["fsync"] == ("everysec", "variable TOPK_BANDIT_FSYNC")
    assert settings["drain_seconds"] == ("2.5", "flag --drain-seconds")
    assert settings["listen"] == ("127.0.0.1:50051", "default")
    assert settings["quotas_file"] == ("-", "default")
    assert (settings["redis_url"][1], "hush" in done.stdout) == (f"{file}, key redis_url", False)
    refused = run("config", "print", TOPK_BANDIT_WORKERS="none")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "workers (from variable TOPK_BANDIT_WORKERS)" in refused.stderr


COMPLETED = {
    "topk-bandit ev": (["events "], []),
    "topk-bandit events ": (["export", "tail"], ["serve"]),
    "topk-bandit serve --listen": (["--listen "], ["--http-listen"]),
    "topk-bandit completion ": (["bash", "fish", "zsh"], []),
}
"""What a shell offers for a line, and what it does not."""

COMPLETE = """
    source <(topk-bandit completion bash)
    function_of=$(complete -p topk-bandit | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
    for COMP_LINE in "$@"; do
        COMP_POINT=${#COMP_LINE} COMP_TYPE=9
        read -ra COMP_WORDS <<< "$COMP_LINE"
        [[ $COMP_LINE == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        "$function_of" topk-bandit "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "= $COMP_LINE" "${COMPREPLY[@]}"
    done
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_words_and_flags() -> None:
    path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
    done = run_process(*COMPLETED, command=("bash", "--norc", "-c", COMPLETE, "bash"), PATH=path)
    assert done.returncode == 0, done.stderr
    found = dict(part.split("\n", 1) for part in done.stdout.split("= ")[1:])
    assert list(found) == list(COMPLETED)
    for line, (some, others) in COMPLETED.items():
        offered = set(found[line].split("\n"))
        assert set(some) <= offered, (line, offered)
        assert not set(others) & offered, (line, offered)


@pytest.mark.parametrize(
    ("shell", "mark"), [("zsh", "#compdef topk-bandit"), ("fish", "complete --command topk-bandit")]
)
def test_other_shells_get_what_they_read(run: Run, shell: str, mark: str) -> None:
    done = run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert mark in done.stdout


class Interrupts:
    """Imports that somebody interrupts."""

    def find_spec(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_ends_quietly_while_it_imports_and_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as importing:
        importing.delitem(sys.modules, "topk_bandit.commands.cli")
        importing.setattr(sys, "meta_path", [Interrupts()])
        assert program() == 130

    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("topk_bandit.commands.cli.main", interrupted)
    assert program() == 130
    assert capsys.readouterr() == ("", "")
