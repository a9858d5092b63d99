"""`topk-bandit log` on the log of a real store: written down, replayed and compared."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bandits.harness import NAME, Shop, running_worker
from tests.contracts.harness import RedisStores, run

from topk_bandit.bandits.budget import MemoryBudget
from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import encode_model
from topk_bandit.commands.cli import _parser, main
from topk_bandit.commands.log import models
from topk_bandit.commands.log.dumps import Dump, lines, read_file
from topk_bandit.domain.operators import EventText
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.store.codec import encode_event
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.embedded import EmbeddedStore
from topk_bandit.store.events import LoggedEvent, Recommended, Rewarded, Shown
from topk_bandit.store.log import Snapshot
from topk_bandit.store.whole_logs import WholeLogs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import Store, TextSlice

ROUNDS = 120
LIMITS = MemoryBudget().limits()


class Traded:
    """A bandit with a history in the embedded store of a folder, and the model that its worker came to."""

    def __init__(self, folder: Path, store: EmbeddedStore, *, rounds: int = ROUNDS) -> None:
        self.folder, self.stores, found = folder, RedisStores(store.url), []

        async def scenario(store: Store) -> None:
            async with running_worker(store, limits=LIMITS) as worker:
                shop = Shop(worker, self.stores, np.random.default_rng(5))
                await shop.create()
                await shop.trade(rounds)
                found.append(await worker.models.follow(NAME))

        run(self.stores, scenario)
        self.live: Model = found[0]

    @property
    def words(self) -> list[str]:
        return [f"--data-dir={self.folder}", f"--key-prefix={self.stores.prefix}"]

    def dump(self, file: Path, *words: str) -> Path:
        assert main(["log", "dump", "shop/home", f"--out={file}", *self.words, *words]) == 0
        return file


@pytest.fixture(scope="module")
def traded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traded]:
    folder = tmp_path_factory.mktemp("data")
    with EmbeddedStore.start(folder, fsync="everysec") as store:
        yield Traded(folder, store)


def facts(text: str) -> dict[str, str]:
    return {line[:24].strip(): line[24:] for line in text.splitlines()}


@pytest.mark.parametrize("word", ["recommendation-id", "request-id"])
def test_events_of_a_recommendation_are_found_in_files_and_store(
    traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    log = read_file(traded.dump(tmp_path / "log"))
    asked = next(one.event for one in log.events if isinstance(one.event, Recommended))
    name = asked.recommendation.recommendation_id
    wanted = [one for one in lines(log) if f'"recommendation_id":"{name}"' in one]
    (tmp_path / "cold").mkdir()
    texts = [EventText(one.position, one.at_ms, encode_event(one.event)) for one in log.events]
    given = name if word == "recommendation-id" else asked.request.request_id
    command = ["log", "find", "shop/home", f"--{word}={given}", *traded.words]
    for cold in ([], [f"--cold-log-dir={tmp_path / 'cold'}"]):
        capsys.readouterr()
        assert main([*command, *cold]) == 0
        assert [json.loads(one) for one in capsys.readouterr().out.splitlines()] == [json.loads(one) for one in wanted]
        ColdLog(tmp_path / "cold").append(NAME, log.incarnation, texts[:40])
    capsys.readouterr()
    assert main([*command[:3], "--group-key=nobody", *traded.words]) == 1
    assert capsys.readouterr() == ("", "topk-bandit: --group-key: no event that can be read has it\n")


def test_a_dump_has_what_each_item_did(tmp_path: Path) -> None:
    event = Rewarded("r", 1.0, Shown((1.0,), ("tea", "milk"), 1), item_values=(0.5, None))
    dump = Dump(str(NAME), "birth", None, (LoggedEvent(3, 7, event),))
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(lines(dump)), encoding="utf-8")
    assert '"item_values":[0.5,null]' in file.read_text(encoding="utf-8")
    assert read_file(file).events == dump.events


def test_a_dump_is_the_log_event_by_event(traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(NAME), *traded.words]) == 0
    head, *events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert head == {"bandit": str(NAME), "incarnation": traded.live.incarnation, "snapshot": None}
    assert [event["position"] for event in events] == list(range(1, traded.live.version + 1))
    assert events[0]["event"]["type"] == "bandit_created"
    file = traded.dump(tmp_path / "log.jsonl")
    assert read_file(file).events[-1] == traded.live.last
    part = read_file(traded.dump(tmp_path / "part.jsonl", "--to=11"))
    assert [logged.position for logged in part.events] == list(range(1, 12))


def test_a_replay_comes_to_the_worker_s_model(
    traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = traded.dump(tmp_path / "log.jsonl")
    assert main(["log", "replay", str(file)]) == 0
    described = facts(capsys.readouterr().out)
    digests = described["log digest"], described["posterior digest"], described["arithmetic"]
    assert digests == digests_of(traded.live)
    assert described["version"].startswith(f"{traded.live.version} (")
    assert described["recommendations"] == str(traded.live.tally.recommendations)
    assert described["observations"].startswith(f"{traded.live.state.observations}, in ")
    assert main(["log", "replay", str(file), "--to=20"]) == 0
    assert facts(capsys.readouterr().out)["version"].startswith("20 (")


@pytest.mark.slow
def test_a_trimmed_log_is_replayed_from_its_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedStore.start(tmp_path / "data", fsync="everysec") as store:
        traded = Traded(tmp_path / "data", store)
        whole = traded.dump(tmp_path / "whole.jsonl")
        kept = checkpoints(read_file(whole))

        async def save(store: Store) -> None:
            for model in (kept[len(kept) // 2], kept[-1]):
                snapshot = Snapshot(model.version, encode_model(model))
                behind = (await store.get_bandit(NAME)).snapshot_position
                assert await store.save_snapshot(NAME, snapshot, incarnation=model.incarnation, behind=behind)

        run(traded.stores, save)
        trimmed = traded.dump(tmp_path / "trimmed.jsonl")
        assert main(["log", "dump", "shop/home", "--to=1", *traded.words]) == 1
        assert "the log begins at" in capsys.readouterr().err
        (tmp_path / "cold").mkdir()
        texts = [EventText(one.position, one.at_ms, encode_event(one.event)) for one in read_file(whole).events]
        with_cold = f"--cold-log-dir={tmp_path / 'cold'}"
        ColdLog(tmp_path / "cold").append(NAME, traded.live.incarnation, texts[: kept[-1].version])
        assert traded.dump(tmp_path / "both.jsonl", with_cold).read_bytes() == whole.read_bytes()
        assert traded.dump(tmp_path / "part.jsonl", with_cold, "--to=9").read_text().count("\n") == 10
    log = read_file(trimmed)
    assert log.snapshot is not None
    assert log.events[0].position == log.snapshot.position + 1 == kept[len(kept) // 2].version + 1
    assert main(["log", "replay", str(trimmed)]) == 0
    described = facts(capsys.readouterr().out)
    assert described["replayed from"] == f"the snapshot at {log.snapshot.position}, as it was saved"
    assert described["posterior digest"] == digests_of(traded.live).posterior
    assert main(["log", "diff", str(whole), str(trimmed)]) == 0
    assert capsys.readouterr().out == f"no difference up to {traded.live.version}\n"
    assert main(["log", "replay", str(trimmed), "--to=1"]) == 1
    assert f"--to: a replay can end at {log.snapshot.position} to {traded.live.version}" in capsys.readouterr().err


def checkpoints(log: Dump) -> list[Model]:
    """Return the models of a whole log that a snapshot could have been taken of."""
    model, found = begin(log.incarnation, log.events[0], limits=LIMITS), []
    for logged in log.events[1:]:
        model = fold(model, logged)
        if model.since_checkpoint == 0:
            found.append(model)
    return found


def test_a_difference_is_shown_by_its_first_event_and_in_standard_deviations(
    traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = traded.dump(tmp_path / "log.jsonl")
    log = read_file(file)
    number, rewarded = next(one for one in enumerate(log.events) if isinstance(one[1].event, Rewarded))
    more = replace(rewarded.event, value=rewarded.event.value + 1.0)
    changed = LoggedEvent(rewarded.position, rewarded.at_ms, more)
    other = tmp_path / "other.jsonl"
    events = (*log.events[:number], changed, *log.events[number + 1 :])
    other.write_text("".join(f"{line}\n" for line in lines(replace(log, events=events))), encoding="utf-8")
    assert main(["log", "diff", str(file), str(other)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"event {rewarded.position} is the first that differs\n  at ")
    assert repr(more.value) in out
    assert {"log digest", "posterior digest", "reward sum", "means"} <= set(facts(out))
    [said] = re.findall(r"means +differ by up to (\S+) standard deviations of the prior", out)
    one, two = (models.replay_dump(read_file(path), limits=LIMITS) for path in (file, other))
    assert float(said) == pytest.approx(plain_difference(one, two), rel=1e-2)
    assert main(["log", "diff", str(file), str(other), f"--to={rewarded.position - 1}"]) == 0
    assert capsys.readouterr().out == f"no difference up to {rewarded.position - 1}\n"


def plain_difference(one: Model, two: Model) -> float:
    """Return the largest difference of means over all slates of eight contexts, one after the other."""
    rng, largest, settings = np.random.default_rng(0), 0.0, one.settings
    items = np.arange(one.state.posterior.kernel.n_items, dtype=np.int32)
    rankings = random_rankings(items, slate_size=settings.slate_size, count=200, rng=rng)
    for context in rng.normal(size=(8, settings.context_dim)):
        prior = one.state.posterior.amplitude * (float(context @ context) + one.state.shared)
        for ranking in rankings:
            pair = [model.state.predict(context, ranking[None]).mean[0] for model in (one, two)]
            largest = max(largest, abs(pair[0] - pair[1]) / math.sqrt(prior))
    return largest


def test_one_log_that_ends_earlier_differs_in_its_end_alone(
    traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, part = traded.dump(tmp_path / "log.jsonl"), traded.dump(tmp_path / "part.jsonl", "--to=50")
    assert main(["log", "diff", str(file), str(part)]) == 1
    assert capsys.readouterr().out == f"one log ends at {traded.live.version}, the other at 50\n"


def test_bandits_of_other_sizes_are_not_compared_slate_by_slate(
    traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = traded.dump(tmp_path / "log.jsonl", "--to=1")
    other = tmp_path / "other.jsonl"
    text = file.read_text(encoding="utf-8")
    other.write_text(text.replace('"context_dim":2', '"context_dim":3'), encoding="utf-8")
    assert main(["log", "diff", str(file), str(other)]) == 1
    assert "predictions can't be compared: the bandits have other sizes" in capsys.readouterr().out


def test_an_event_that_names_an_unknown_item_is_reported_with_its_file_and_position(
    traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = traded.dump(tmp_path / "log.jsonl")
    lines = file.read_text(encoding="utf-8").splitlines()
    place = next(n for n, line in enumerate(lines) if '"recommended"' in line)
    item = re.search(r'"slate":\["([^"]+)"', lines[place])
    assert item is not None
    lines[place] = lines[place].replace(f'"slate":["{item[1]}"', '"slate":["nobody"')
    file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert main(["log", "replay", str(file)]) == 1
    position = json.loads(lines[place])["position"]
    assert f"log.jsonl: event {position} can't be folded: the log names the item 'nobody'" in capsys.readouterr().err


UNUSABLE = [
    (["dump", "shop"], "bandit: "),
    (["dump", "shop/nowhere"], "tenants/shop/bandits/nowhere not found"),
    (["dump", "shop/home", "--data-dir=/nowhere"], "there is no store in /nowhere"),
    (["dump", "shop/home", "--out=/dev/null/log"], "/dev/null/log can't be written"),
    (["dump", "shop/home", "--cold-log-dir=/nowhere"], "--cold-log-dir: there is no folder /nowhere"),
    (["replay", "/dev/null/log"], "/dev/null/log can't be read"),
    (["replay", "EMPTY"], "line 1: is no JSON"),
    (["replay", "TORN"], "line 3: is no JSON"),
    (["replay", "MIDDLE"], "MIDDLE: event 5 can't be folded: a log begins with "),
    (["diff", "MIDDLE", "MIDDLE"], "MIDDLE: event 5 can't be folded: a log begins with "),
]


def test_what_cannot_be_used_is_named(traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / name for name in ("EMPTY", "TORN", "MIDDLE")}
    files["EMPTY"].write_text("")
    files["TORN"].write_text(traded.dump(tmp_path / "log.jsonl", "--to=2").read_text(encoding="utf-8")[:-9])
    head, *events = traded.dump(tmp_path / "log.jsonl", "--to=9").read_text(encoding="utf-8").splitlines(keepends=True)
    files["MIDDLE"].write_text("".join((head, *events[4:])), encoding="utf-8")
    for words, problem in UNUSABLE:
        given = [str(files.get(word, word)) for word in words]
        own = [] if words[0] != "dump" or "--data-dir=/nowhere" in words else traded.words
        assert main(["log", *given, *own]) == 1, words
        assert problem in capsys.readouterr().err, words


@pytest.mark.parametrize(
    ("place", "before", "after", "problem"),
    [
        (0, '"snapshot": null', '"snapshot": 0', "line 1: snapshot can't be 0"),
        (0, '"snapshot": null', '"snapshot": ""', "line 1: snapshot can't be ''"),
        (
            0,
            '"snapshot": null',
            '"snapshot": {"position": "3", "payload": ""}',
            "line 1: no snapshot: position can't be '3'",
        ),
        (0, '"snapshot": null', '"snapshot": {"position": 3, "payload": "!"}', "line 1: no snapshot: "),
        (0, '{"bandit"', '{"bandit": "x", "bandit"', "line 1: has the key 'bandit' twice"),
        (0, '"snapshot": null', f'"snapshot": {"[" * 100_000}', "line 1: is JSON inside JSON, too deep"),
        (
            0,
            '"incarnation"',
            '"incarnated"',
            "line 1: is no JSON object with bandit, incarnation, snapshot, and nothing",
        ),
        (1, '"position":1,', '"position":1.9,', "line 2: position can't be 1.9"),
        (1, '"position":1,', '"position":true,', "line 2: position can't be True"),
        (1, '"position":1,', '"position":7,"position":1,', "line 2: has the key 'position' twice"),
        (1, '"at_ms":', '"at_ms":Infinity,"x":', "line 2: has Infinity, which is no number of JSON"),
        (1, '"event":{', '"event":{"x":1e400,', "line 2: no event: it has a number that no float can be"),
        (1, '"at_ms":', '"x":1,"at_ms":', "line 2: is no JSON object with position, at_ms, event, and nothing else"),
    ],
)
def test_a_line_that_is_not_wholly_understood_is_refused(
    traded: Traded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    place: int,
    before: str,
    after: str,
    problem: str,
) -> None:
    file = traded.dump(tmp_path / "log.jsonl", "--to=4")
    lines = file.read_text(encoding="utf-8").split("\n")
    assert before in lines[place]
    lines[place] = lines[place].replace(before, after, 1)
    file.write_text("\n".join(lines), encoding="utf-8")
    assert main(["log", "replay", str(file)]) == 1
    assert f"log.jsonl, {problem}" in capsys.readouterr().err


def test_what_other_languages_take_for_the_end_of_a_line_is_a_part_of_a_text(
    traded: Traded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mark at the beginning, as editors write it, is none; a text may have line separators of Unicode."""
    file = traded.dump(tmp_path / "log.jsonl", "--to=4")
    assert main(["log", "replay", str(file)]) == 0
    expected = capsys.readouterr().out
    file.write_text("\ufeff" + file.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["log", "replay", str(file)]) == 0
    assert capsys.readouterr().out == expected
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    for end in ("\u2028", "\x85"):
        name = f"one{end}two"
        event = json.loads(lines[0]) | {"bandit": name}
        file.write_text("\n".join([json.dumps(event, ensure_ascii=False), *lines[1:], ""]), encoding="utf-8")
        assert read_file(file).bandit == name


@pytest.mark.slow
def test_who_stops_reading_hears_no_complaint(traded: Traded) -> None:
    command = [sys.executable, "-m", "topk_bandit", "log", "dump", "shop/home", *traded.words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_store_that_nobody_runs_is_started_for_it(tmp_path: Path) -> None:
    with EmbeddedStore.start(tmp_path / "data", fsync="everysec") as store:
        traded = Traded(tmp_path / "data", store, rounds=20)
    assert read_file(traded.dump(tmp_path / "log.jsonl")).events[-1] == traded.live.last


def commands_in(page: str) -> list[list[str]]:
    """Return the words of all `topk-bandit` commands in code on a page of the documentation."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(r"(?m)^    topk-bandit ([^|\n]+)", text) + re.findall(r"`topk-bandit ([^`]+)`", text)
    return [shlex.split(command) for command in found]


COMMANDS = [
    words for page in ("debugging.md", "off-policy.md") for words in commands_in(page) if words[0] != "experiment"
]


def test_commands_in_the_documentation_can_be_given() -> None:
    assert len(COMMANDS) > 5
    parser = _parser()
    assert all(callable(parser.parse_args(words).run) for words in COMMANDS)


def test_half_a_dump_does_not_stay(traded: Traded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = WholeLogs.read_texts

    async def trimmed(self: WholeLogs, name: BanditName, *, start: int, limit: int) -> TextSlice:
        part = await read(self, name, start=start, limit=limit)
        return part if start == 1 else replace(part, events=())

    monkeypatch.setattr("topk_bandit.commands.log.dumps.EVENTS_PER_READ", 10)
    monkeypatch.setattr(WholeLogs, "read_texts", trimmed)
    assert main(["log", "dump", "shop/home", f"--out={tmp_path / 'log'}", *traded.words]) == 1
    assert not (tmp_path / "log").exists()
