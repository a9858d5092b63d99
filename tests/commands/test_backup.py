"""Backups: all bandits of a service that is in use, restored into an empty one, where they are the same."""

from __future__ import annotations

import json
import re
import shutil
import threading
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.archives import ended
from tests.contracts.study_archives import ended_study
from tests.faults.service import serving
from tests.waiting import PATIENCE

from topk_bandit.client import Client, NotFound, PastAnswer
from topk_bandit.commands.cli import main
from topk_bandit.commands.operate.archives import examine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.service import Service

pytestmark = pytest.mark.slow  # it runs whole services

LONG_STORE_CALLS = "--store-timeout-seconds=60"

BANDITS = {("shop", "home"): 440, ("shop", "cart"): 40, ("acme.de", "home"): 90, ("Shop", "home"): 0}


def client_of(service: Service, tenant: str = "shop") -> Client:
    return service.client(tenant=tenant, timeout=PATIENCE)


class Ask:
    """Runs a command against a service, and gives the lines that it prints."""

    def __init__(self, service: Service, capsys: pytest.CaptureFixture[str]) -> None:
        self._service, self._capsys = service, capsys

    def __call__(self, *words: str, status: int = 0) -> list[str]:
        self._capsys.readouterr()
        found = main([*words, f"--address={self._service.address}"])
        captured = self._capsys.readouterr()
        assert found == status, captured
        return (captured.err if status else captured.out).splitlines()


def trade(client: Client, bandit: str, rounds: int, *, first: int = 0) -> None:
    for number in range(first, first + rounds):
        slate = client.recommend(bandit, [1.0, number % 7 / 7], request_id=f"r{number}")
        if number % 5:
            client.reward(bandit, slate.id, float(len(slate.items[0]) + number % 3))


def make(service: Service) -> None:
    for (tenant, bandit), rounds in BANDITS.items():
        with client_of(service, tenant) as client:
            client.create_bandit(bandit, slate_size=2, item_capacity=9, context_dimension=2)
            client.upsert_items(bandit, ["a", "bb", "ccc", "dddd"])
            trade(client, bandit, rounds)
            client.stats(bandit)  # which learns all of it, and saves snapshots


@contextmanager
def traffic(service: Service) -> Iterator[None]:
    """Trade in one of the bandits until the end of the block."""
    stop, failed = threading.Event(), list[Exception]()

    def go_on() -> None:
        number = 100_000
        with client_of(service, "shop") as client:
            while not stop.is_set():
                try:
                    trade(client, "home", 1, first=number)
                except Exception as error:  # noqa: BLE001 - asserted below
                    failed.append(error)
                    return
                number += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def digests(service: Service, tenant: str, bandit: str) -> tuple[int, str, str, str]:
    with client_of(service, tenant) as client:
        found = client.verify(bandit)
        assert found.agrees
        return found.model_version, found.log_digest, found.posterior_digest, found.arithmetic


@pytest.fixture(scope="module")
def backed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Path]]:
    """A service with bandits of several tenants, and a backup of it that was written while one of them traded."""
    root = tmp_path_factory.mktemp("backed")
    with serving(root / "data", LONG_STORE_CALLS) as service:
        make(service)
        with traffic(service):
            assert main(["backup", str(root / "copy"), f"--address={service.address}"]) == 0
        yield service, root / "copy"


def test_an_empty_service_gets_the_bandits_as_they_were(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service, folder = backed
    entries = {one["bandit"]: one for one in json.loads((folder / "manifest.json").read_text())["bandits"]}
    head = json.loads((folder / "shop+home.jsonl").read_text().partition("\n")[0])
    assert head["bandit"]["first_position"] > 1  # its log is trimmed
    assert set(entries) == {f"tenants/{tenant}/bandits/{bandit}" for tenant, bandit in BANDITS}
    with serving(tmp_path / "data", LONG_STORE_CALLS) as other:
        ask = Ask(other, capsys)
        assert ask("restore", str(folder))[-1] == f"4 bandits of {folder}"
        capsys.readouterr()
        assert main(["log", "replay", str(folder / "shop+home.jsonl")]) == 0
        folded = capsys.readouterr().out
        assert f"replayed from           the snapshot at {head['bandit']['first_position'] - 1}" in folded
        assert all(digest in folded for digest in digests(other, "shop", "home")[1:])
        for tenant, bandit in BANDITS:
            version, *found = digests(other, tenant, bandit)
            assert version == entries[f"tenants/{tenant}/bandits/{bandit}"]["log_position"]
            if (tenant, bandit) != ("shop", "home"):  # it has learned more since
                assert (version, *found) == digests(service, tenant, bandit)
        with client_of(other) as restored, client_of(service) as original:
            again = [client.recommend("home", [1.0, 255 % 7 / 7], request_id="r255") for client in (restored, original)]
            assert again[0] == again[1]
            assert restored.reward("home", again[0].id, 2.0).outcome == "accepted"
        exists = ask("restore", str(folder), status=1)
        assert "exist already: tenants/Shop/bandits/home" in exists[0]
        before = digests(other, "shop", "home")
        assert "shop/cart: exists, left as it is" in ask("restore", str(folder), "--existing=skip")
        assert digests(other, "shop", "home") == before
        with client_of(other) as client:
            client.delete_bandit("cart")
        printed = ask("restore", str(folder), "--existing=replace")
        assert any(line.startswith("shop/home: ") and "in place of" in line for line in printed)
        assert digests(other, "shop", "home")[0] == entries["tenants/shop/bandits/home"]["log_position"]
        assert digests(other, "shop", "cart") == digests(service, "shop", "cart")


def test_files_that_were_changed_are_refused_and_named(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service, folder = backed
    ask = Ask(service, capsys)
    name = "shop+cart.jsonl"
    text = (folder / name).read_text()
    for place, (spoilt, problem) in enumerate(
        (
            (text[:-9], "bytes, and had"),
            (text.replace('"value":3.0', '"value":4.0', 1), "SHA-256 differs"),
            (None, "is missing"),
        )
    ):
        copy = tmp_path / f"copy-{place}"
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        if spoilt is not None:
            assert spoilt != text
            (copy / name).write_text(spoilt)
        [line, count] = ask("restore", str(copy), "--existing=replace", status=1)
        assert line.startswith(f"topk-bandit: {copy / name}: ")
        assert problem in line
        assert count == f"1 of 4 bandits of {copy} not restored"
        if spoilt is not None:
            [line] = ask("events", "import", str(copy / name), "--as=shop/new", status=1)
            assert f"{copy / name}: " in line
    [line] = ask("restore", str(tmp_path), status=1)
    assert f"{tmp_path / 'manifest.json'} can't be read, so this is no backup" in line
    [line] = ask("backup", str(folder), status=1)
    assert "is not empty" in line
    with client_of(service) as client, pytest.raises(NotFound):
        client.get_bandit("new")


def test_the_others_are_restored_beside_files_that_are_bad(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = backed
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "shop+cart.jsonl").unlink()
    (copy / "acme.de+home.jsonl").write_bytes(b"\xff\n")
    with serving(tmp_path / "data", LONG_STORE_CALLS) as other:
        ask = Ask(other, capsys)
        first, second, count = ask("restore", str(copy), status=1)
        assert {first.removeprefix("topk-bandit: ").partition(": ")[0], second.partition(": ")[0]} == {
            str(copy / "shop+cart.jsonl"),
            str(copy / "acme.de+home.jsonl"),
        }
        assert count == f"2 of 4 bandits of {copy} not restored"
        restored = {(one.tenant, one.bandit) for one in client_of(other).list_bandit_overviews(every_tenant=True)}
        assert restored == {("shop", "home"), ("Shop", "home")}
        printed = ask("restore", str(folder), "--existing=skip")
        assert printed[-1] == f"4 bandits of {folder}"
        before = digests(other, "shop", "cart")
        ask("restore", str(copy), "--existing=replace", status=1)
        assert digests(other, "shop", "cart") == before, "what has no good file stays as it is"


@pytest.mark.parametrize(
    ("change", "value", "said"),
    [
        ("file", 5, "file can't be 5"),
        ("file", None, "file can't be None"),
        ("file", "../shop+home.jsonl", "file can't be '../shop+home.jsonl': it is the name of a file in the folder"),
        ("file", "a" * 300, "it is the name of a file in the folder"),
        ("bytes", "52816", "bytes can't be '52816'"),
        ("bytes", True, "bytes can't be True"),
        ("sha256", None, "sha256 can't be None"),
        ("bandit", 7, "bandit can't be 7"),
        ("bandit", "a/b/c", "bandit: must be "),
        ("bandit", "tenants/shop/bandits/home", "tenants/shop/bandits/home is there twice"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_named(
    backed: tuple[Service, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: str,
    value: object,
    said: str,
) -> None:
    service, folder = backed
    manifest = json.loads((folder / "manifest.json").read_text())
    place = next(n for n, one in enumerate(manifest["bandits"]) if not one["bandit"].endswith("/shop/bandits/home"))
    manifest["bandits"][place][change] = value
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    [line] = Ask(service, capsys)("restore", str(tmp_path), "--existing=skip", status=1)
    assert f"{tmp_path / 'manifest.json'}: is no manifest of a backup: bandits[" in line
    assert said in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON"),
        ("[]", "is no JSON object"),
        ("{}", "v can't be None, but 1"),
        ('{"v": "1"}', "v can't be '1', but 1"),
        ('{"v": 1, "bandits": {}}', "bandits is no list"),
        ('{"v": 1, "bandits": []}', "studies is no list"),
        ("[" * 100_000, "is JSON inside JSON"),
        ('{"v": 1, "bandits": [[]], "studies": []}', "bandits[0] is no JSON object"),
    ],
)
def test_what_is_no_manifest_is_named(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    [line] = Ask(backed[0], capsys)("restore", str(tmp_path), status=1)
    assert f"is no manifest of a backup: {said}" in line


def test_a_bandit_is_made_of_no_file_of_another_one(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service, folder = backed
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    by_name = {one["bandit"]: one for one in manifest["bandits"]}
    home, cart = (by_name[f"tenants/shop/bandits/{bandit}"] for bandit in ("home", "cart"))
    home |= {name: cart[name] for name in ("file", "bytes", "sha256", "log_position")}
    manifest["bandits"] = [home]
    (copy / "manifest.json").write_text(json.dumps(manifest))
    before = digests(service, "shop", "home")
    *_, problem, count = Ask(service, capsys)("restore", str(copy), "--existing=replace", status=1)
    assert "its first line names tenants/shop/bandits/cart, and the manifest tenants/shop/bandits/home" in problem
    assert count.startswith("1 of ")
    assert digests(service, "shop", "home") == before


def ask_people(client: Client, study: str, rounds: int, *, kind: str, list_size: int = 0) -> None:
    """Create a study, and answer questions of it: the item with the larger number is preferred."""
    items = {f"i{number}": [number / 7, number % 3] for number in range(7)}
    client.create_study(study, items, budget=40, answer_kind=kind, list_size=list_size)
    client.wait_for_design(study)
    for number in range(rounds):
        asked = client.next_questions(study, 2, request_id=f"visit-{number}")
        best = {one.id: max(one.items) for one in asked.questions}
        client.submit_answers(study, best)


def state_of(client: Client, study: str) -> tuple[Any, ...]:
    """Return all that a service tells of a study."""
    again = client.next_questions(study, 2, request_id="visit-1")
    return client.get_study(study), client.get_preferences(study), client.design(study), again


def test_studies_come_back_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "copy"
    with serving(tmp_path / "data", LONG_STORE_CALLS) as service, client_of(service, "lab") as client:
        ask = Ask(service, capsys)
        ask_people(client, "taste", 6, kind="pair")
        past = [PastAnswer("i6", shown=("i5", "i6"))] * 3
        client.import_answers("taste", past, import_id="last-year")
        ask_people(client, "home", 2, kind="choice", list_size=3)
        client.create_bandit("home", slate_size=1, item_capacity=2)
        before = {study: state_of(client, study) for study in ("taste", "home")}
        assert before["taste"][0].answered_count == 12
        assert before["taste"][1].items[0].id == "i6"
        assert ask("backup", str(folder))[-1] == f"1 bandit and 2 studies in {folder}"
        [line] = ask("backup", str(tmp_path / "none"), "--tenant=lap", status=1)
        assert line == "topk-bandit: a bandit or study of tenant lap not found"
        assert not any((tmp_path / "none").iterdir())
        for study in before:
            client.delete_study(study)
        client.delete_bandit("home")
        assert ask("tenants", "list") == []
        assert ask("restore", str(folder))[-1] == f"1 bandit and 2 studies of {folder}"
        assert {study: state_of(client, study) for study in before} == before
        assert client.import_answers("taste", past, import_id="last-year").duplicates == 3
        assert client.next_questions("taste", 2).asked_count == 14, "it goes on"
        [line] = ask("restore", str(folder), status=1)
        assert "exist already: tenants/lab/bandits/home, tenants/lab/studies/home, tenants/lab/studies/taste" in line
        assert "study lab/taste: exists, left as it is" in ask("restore", str(folder), "--existing=skip")
        assert client.get_study("taste").asked_count == 14
        printed = ask("restore", str(folder), "--existing=replace")
        assert any(line.startswith("study lab/taste: ") and "in place of" in line for line in printed)
        assert {study: state_of(client, study) for study in before} == before
        refuse_changed_study(folder, ask)


def refuse_changed_study(folder: Path, ask: Ask) -> None:
    """A line that no service takes is found before anything is deleted, though the manifest knows it."""
    file = folder / "lab++taste.jsonl"
    *lines, _ = file.read_text().splitlines()
    spoilt = [line.replace('"question":2,', '"question":1,') for line in lines]
    assert spoilt != lines
    file.write_text("\n".join([*ended_study(spoilt), ""]))
    line, _ = ask("restore", str(folder), "--existing=replace", status=1)
    assert "SHA-256 differs" in line
    manifest = json.loads((folder / "manifest.json").read_text())
    for one in manifest["studies"]:
        if one["file"] == file.name:
            one |= {"bytes": file.stat().st_size, "sha256": sha256(file.read_bytes()).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    line, count = ask("restore", str(folder), "--existing=replace", status=1)
    assert f"{file}, line {len(lines) + 1}: " in line
    assert "repeats an earlier one" in line
    assert count == f"1 of 1 bandit and 2 studies of {folder} not restored"


@pytest.mark.parametrize("flag", ["--out={}.jsonl", "--parquet={}.parquet"])
def test_a_file_becomes_a_bandit_of_any_name(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    service, _ = backed
    ask, written = Ask(service, capsys), flag.format(tmp_path / "cart")
    bandit = f"other/{'text' if 'out' in flag else 'columns'}"
    before = digests(service, "shop", "cart")
    ask("events", "export", "shop/cart", written)
    file = written.partition("=")[2]
    assert ask("events", "import", file, f"--as={bandit}") == [f"imported {bandit}: {before[0]} events"]
    assert digests(service, *bandit.split("/")) == before
    assert ask("events", "import", file, f"--as={bandit}") == [f"imported {bandit}: {before[0]} events"]
    exported = ask("events", "export", "shop/cart")
    assert exported[1:-1] == ask("events", "export", bandit)[1:-1]
    [line] = ask("events", "import", file, status=1)
    assert "exists: an import makes its bandit anew" in line


def test_a_line_that_the_service_refuses_is_named(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service, folder = backed
    ask, file = Ask(service, capsys), tmp_path / "cart.jsonl"
    lines = (folder / "shop+cart.jsonl").read_text().splitlines()
    lines[20] = lines[20].replace('"type":"', '"type":"un')
    file.write_text("\n".join([*ended(lines[:-1]), ""]))
    [line] = ask("events", "import", str(file), "--as=shop/new", status=1)
    assert f"{file}, line 21: stored bytes are damaged" in line
    place = next(n for n, line in enumerate(lines) if '"type":"rewarded"' in line)
    lines[20] = lines[20].replace('"type":"un', '"type":"')
    lines[place] = re.sub(r'"value":[^,}]+', '"value":1e300', lines[place])
    file.write_text("\n".join([*ended(lines[:-1]), ""]))
    [line] = ask("events", "import", str(file), "--as=shop/new", status=1)
    assert f"{file}, line {place + 1}, reward: must be a finite number from " in line
    with client_of(service) as client, pytest.raises(NotFound):
        client.get_bandit("new")


def test_nothing_is_deleted_for_a_file_with_a_line_that_no_service_takes(
    backed: tuple[Service, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service, folder = backed
    ask, copy = Ask(service, capsys), tmp_path / "copy"
    shutil.copytree(folder, copy)
    file = copy / "shop+cart.jsonl"
    lines = file.read_text().splitlines()
    lines[20] = lines[20].replace('"type":"', '"type":"un')
    file.write_text("\n".join([*ended(lines[:-1]), ""]))
    manifest = json.loads((copy / "manifest.json").read_text())
    for one in manifest["bandits"]:
        if one["file"] == file.name:
            one |= {"bytes": file.stat().st_size, "sha256": sha256(file.read_bytes()).hexdigest()}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    before = digests(service, "shop", "cart")
    with client_of(service) as client:
        revision = client.recommend("cart", [1.0, 0.0], request_id="kept").id
    line, _ = ask("restore", str(copy), "--existing=replace", status=1)
    assert f"{file}, line 21: stored bytes are damaged" in line
    with client_of(service) as client:
        assert client.recommend("cart", [1.0, 0.0], request_id="kept").id == revision
    assert digests(service, "shop", "cart")[0] == before[0] + 1


def test_an_import_that_was_interrupted_goes_on(
    backed: tuple[Service, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    service, folder = backed
    ask, file = Ask(service, capsys), folder / "acme.de+home.jsonl"
    archive, lines = examine(file), file.read_text().splitlines()
    with client_of(service, "other") as client:
        begun = client.import_events("late", lines[:37], import_id=archive.digest, first_line=0)
        assert (begun.next_line, begun.log_position) == (37, 0)
        with pytest.raises(NotFound):
            client.recommend("late", [1.0, 0.5])
        assert ask("events", "import", str(file), "--as=other/late") == [
            f"imported other/late: {archive.position} events"
        ]
        assert digests(service, "other", "late") == digests(service, "acme.de", "home")
        client.delete_bandit("late")
