"""`topk-bandit study import`: answers in files of three formats, as a study of a service gets them."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.rpc.studies import FEATURES, study_server
from tests.waiting import PATIENCE

from topk_bandit.client import Client
from topk_bandit.commands.cli import main
from topk_bandit.commands.study import imports
from topk_bandit.store.rules import studies as rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.rpc.harness import RunningServer

ITEMS = {f"i{number}": row.tolist() for number, row in enumerate(FEATURES)}
KINDS = {"ranking": 3, "choice": 3, "pair": 2, "ratings": 3}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningServer]:
    with study_server() as server:
        yield server


@pytest.fixture
def client(running: RunningServer) -> Iterator[Client]:
    with Client(running.target, tenant="acme", timeout=PATIENCE) as opened:
        yield opened
        for study in opened.list_studies():
            opened.delete_study(study.name)


@pytest.fixture
def server(running: RunningServer, client: Client, request: pytest.FixtureRequest) -> RunningServer:
    """Have a study of each kind at the server, or of the one kind that the test asks about."""
    asked = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    for kind in {asked.get("kind", asked.get("study"))} & {*KINDS} or KINDS:
        client.create_study(kind, ITEMS, answer_kind=kind, list_size=KINDS[kind], budget=9)
    return running


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return path
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(
            {key: "|".join(map(str, value)) if isinstance(value, list) else value for key, value in row.items()}
            for row in rows
        )
    return path


def called(server: RunningServer, path: Path, study: str, *flags: str) -> int:
    return main(["study", "import", f"acme/{study}", str(path), "--address", server.target, *flags])


LISTS = {"items": ["i3", "i1", "i4"]}
COLUMNS = {"item_1": "i3", "item_2": "i1", "item_3": "i4"}
SAID: dict[str, list[dict[str, Any]]] = {
    "ranking": [LISTS, COLUMNS],
    "choice": [LISTS, COLUMNS, {**LISTS, "chosen": "i3"}, {"items": ["i1", "i3", "i4"], "chosen": "i3"}],
    "pair": [{"items": ["i3", "i1"]}, {"item_1": "i1", "item_2": "i3", "chosen": "i3"}],
    "ratings": [{**LISTS, "ratings": [2.0, 1.0, 0]}, {**COLUMNS, "rating_1": 2, "rating_2": 1.0, "rating_3": 0}],
}


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_same_however_a_row_says_it(
    server: RunningServer, client: Client, tmp_path: Path, kind: str, suffix: str
) -> None:
    for number, row in enumerate(SAID[kind]):
        path = write(tmp_path / f"{number}.{suffix}", [row])
        # Under one id, whoever says something else would be refused.
        assert called(server, path, kind, "--import-id", f"{number}") == 0
        assert client.get_answer_import(kind, f"{number}") == 1
    learned = client.get_preferences(kind)
    assert learned.answered_count == len(SAID[kind])
    assert learned.items[0].id == "i3" if kind != "ratings" else learned.items


def test_ratings_may_be_an_object_or_one_a_row(server: RunningServer, client: Client, tmp_path: Path) -> None:
    rows = [{"ratings": {"i3": 2, "i1": 1.5}}, {"item": "i4", "rating": 1}]
    assert called(server, write(tmp_path / "a.jsonl", rows), "ratings") == 0
    assert called(server, write(tmp_path / "b.csv", [{"item": "i4", "rating": 1}]), "ratings") == 0
    assert client.get_preferences("ratings").answered_count == 3


def test_the_same_file_again_changes_nothing_and_a_bad_row_is_named(
    server: RunningServer, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"items": [f"i{n % 9}", f"i{(n + 1) % 9}"], "mood": "fine"} for n in range(1200)]
    path = write(tmp_path / "year.jsonl", rows)
    for expected in ("1200 answers imported: import", "0 answers imported; 1200 were imported before: import"):
        assert called(server, path, "ranking") == 0
        out = capsys.readouterr().out
        assert expected in out
        assert "columns that mean nothing to the study: mood" in out
    assert client.get_study("ranking").imported_count == 1200
    assert called(server, write(tmp_path / "other.jsonl", rows[:4]), "ranking", "--import-id", "year") == 0
    assert called(server, write(tmp_path / "less.jsonl", rows[:3]), "ranking", "--import-id", "year") == 1
    problem = "--import-id: the file has 3 rows, and the import took 4: it is another file"
    assert problem in capsys.readouterr().err
    rows[1100] = {"items": ["i1", "nothing"], "mood": "fine"}
    assert called(server, write(tmp_path / "bad.jsonl", rows), "ranking", "--import-id", "new") == 1
    error = capsys.readouterr().err
    assert "bad.jsonl, line 1101, ranking.item_ids[1]: is no item of the study" in error
    assert "1000 rows are imported: a corrected file goes on with --import-id new" in error
    assert client.get_study("ranking").imported_count == 2204


def test_more_answers_than_a_study_takes_are_refused_before_any_is_sent(
    *,
    server: RunningServer,
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in imports, rules:
        monkeypatch.setattr(module, "MOST_IMPORTED", 1100)
    whole = write(tmp_path / "whole.jsonl", [LISTS] * 1100)
    assert called(server, write(tmp_path / "first.jsonl", [LISTS]), "ranking", "--import-id", "year") == 0
    for flags in ["--check"], []:
        assert called(server, whole, "ranking", *flags) == 1
        printed = capsys.readouterr().err
        assert (
            "whole.jsonl, line 1100: is the first answer too many: a study takes 1100 answers from elsewhere" in printed
        )
        assert "and this one has 1; nothing was sent" in printed
        assert client.get_study("ranking").imported_count == 1
    for _ in range(2):
        assert called(server, whole, "ranking", "--import-id", "year") == 0
        assert client.get_study("ranking").imported_count == 1100


@pytest.mark.parametrize(
    ("study", "row", "problem"),
    [
        ("ranking", {"reward": 1}, "column 'items': is missing"),
        ("ranking", {"items": 7}, "column 'items': expected a list"),
        (
            "ratings",
            {"ratings": {" i1": 1}},
            "column 'ratings': expected a text without blanks around it, got ' i1': write",
        ),
        ("ratings", {"items": ["i1"], "ratings": []}, "column 'ratings': expected one for each item"),
        ("ratings", {"item": "i1", "rating": "good"}, "column 'rating': expected a finite number"),
        ("ratings", {"items": ["i1", "i1"], "ratings": [1, 2]}, "column 'items': names the item 'i1' a second time"),
    ],
)
def test_a_row_of_another_form_is_named_before_anything_is_sent(
    *,
    server: RunningServer,
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    study: str,
    row: dict[str, Any],
    problem: str,
) -> None:
    good = {"items": ["i1", "i2"], "ratings": [1, 2]} if study == "ratings" else LISTS
    assert called(server, write(tmp_path / "a.jsonl", [good, row]), study) == 1
    assert f"a.jsonl, line 2, {problem}" in capsys.readouterr().err
    assert client.get_study(study).imported_count == 0


def test_a_dry_run_shows_what_is_understood_and_sends_nothing(
    server: RunningServer, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in KINDS:
        path = write(tmp_path / f"{kind}.csv", [SAID[kind][-1] | {"mood": "fine"}])
        assert called(server, path, kind, "--check") == 0
        printed = capsys.readouterr().out
        assert "1 answers can be imported, 0 can't; nothing was sent" in printed
        assert "passed" in printed
        assert client.get_study(kind).imported_count == 0


@pytest.mark.parametrize(
    ("study", "row", "problem"),
    [
        ("ranking", {"items": ["i1", "nothing"]}, "ranking.item_ids[1]: is no item of the study: 'nothing'"),
        ("ranking", {"items": ["i1", "i2"], "query": "q"}, "query_id: the study has no queries"),
        (
            "ratings",
            {"items": ["i1"], "ratings": [1e300]},
            "column 'ratings': expected a finite number from -1e+06 to 1e+06",
        ),
        ("pair", {"items": ["i1", "i2", "i3"]}, "item_ids: expected 2 items that were shown, got 3"),
        ("choice", {"items": ["i1", "x" * 200]}, "item_ids[1]"),
        ("ranking", {"items": ["i1"]}, "column 'items': expected at least 2 items, got 1"),
    ],
)
def test_a_dry_run_knows_what_the_study_takes(
    *,
    server: RunningServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    study: str,
    row: dict[str, Any],
    problem: str,
) -> None:
    good = SAID[study][0]
    assert called(server, write(tmp_path / "a.jsonl", [good, row, good]), study, "--check") == 1
    printed = capsys.readouterr().out
    assert f"can't be taken: a.jsonl, line 2, {problem}" in printed
    assert "2 answers can be imported, 1 can't; nothing was sent" in printed


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        pytest.param(
            "ranking",
            [
                {"items": ["i3", "i1", "i4"], "places": [1, 2, 2]},
                {"item_1": "i4", "item_2": "i1", "item_3": "i3", "place_1": 2, "place_2": 2, "place_3": 1},
                {"item_1": "i4", "item_2": "i3", "item_3": "i1", "place_1": "", "place_2": 1, "place_3": ""},
                {"items": ["i1", "i3", "i4"], "best_item": "i3"},
            ],
            id="the best one",
        ),
        pytest.param(
            "ranking",
            [
                {"items": ["i3", "i1", "i4"]},
                {"items": ["i3", "i4", "i1"], "places": [1, 3, 2]},
                {"items": ["i1", "i4", "i3"], "best_item": "i3", "worst_item": "i4"},
            ],
            id="whole",
        ),
        pytest.param(
            "choice",
            [{"items": ["i3", "i1", "i4"]}, {"items": ["i1", "i3", "i4"], "best_item": "i3"}],
            id="choice",
        ),
        pytest.param(
            "pair",
            [{"items": ["i3", "i1"], "places": [1, 1]}, {"items": ["i1", "i3"], "places": [4, 4]}],
            id="tie",
        ),
        pytest.param(
            "ranking",
            [{"items": ["i1", "i3", "i4"], "worst_item": "i4"}, {"items": ["i3", "i1", "i4"], "places": [1, 1, 2]}],
            id="the worst one",
        ),
    ],
)
def test_answers_of_people_are_the_same_however_a_row_says_them(
    server: RunningServer, client: Client, tmp_path: Path, kind: str, rows: list[dict[str, Any]], suffix: str
) -> None:
    for number, row in enumerate(rows):
        # All under one id: a file that says something else would be refused.
        path = write(tmp_path / f"{number}.{suffix}", [row])
        assert called(server, path, kind, "--import-id", "same") == 0
    assert client.get_study(kind).imported_count == 1


def test_declined_answers_are_taken_and_counted(server: RunningServer, client: Client, tmp_path: Path) -> None:
    ranked = [{"items": ["i3", "i1"], "declined": ""}, {"items": ["i3", "i1"], "declined": "skipped"}]
    ranked.append({"items": ["i4", "i1"], "declined": "none_of_these"})
    assert called(server, write(tmp_path / "a.csv", ranked), "ranking") == 0
    learned = client.get_preferences("ranking")
    assert (learned.answered_count, learned.skipped_count, learned.none_of_these_count) == (1, 1, 1)
    rated = [{"item": "i4", "rating": 1, "declined": ""}, {"item": "i3", "rating": "", "declined": "skipped"}]
    assert called(server, write(tmp_path / "b.csv", rated), "ratings") == 0
    learned = client.get_preferences("ratings")
    assert (learned.answered_count, learned.skipped_count) == (1, 1)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"declined": "later"}, "column 'declined': expected skipped or none_of_these, got 'later'"),
        ({"best_item": "i7"}, "column 'best_item': 'i7' is none of the row's items"),
        ({"best_item": "i1", "worst_item": "i1"}, "column 'worst_item': 'i1' is the best item, too"),
        ({"places": [1, "x", 2]}, "column 'places'"),
        ({"best_item": "i1", "places": [1, 2, 3]}, "column 'best_item': is there beside another answer"),
        ({"place_4": 1}, "column 'place_4': is there, but item_4 is missing"),
    ],
)
def test_a_bad_answer_of_people_is_named_by_its_column(
    server: RunningServer,
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    row: dict[str, Any],
    problem: str,
) -> None:
    assert called(server, write(tmp_path / "a.jsonl", [{"items": ["i1", "i2", "i3"], **row}]), "ranking") == 1
    assert f"a.jsonl, line 1, {problem}" in capsys.readouterr().err
    assert client.get_study("ranking").imported_count == 0


def test_a_dry_run_shows_answers_of_people_as_they_are_said(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ["i1", "i2", "i3"]
    rows: list[dict[str, Any]] = [
        {"items": shown, "places": [1, 2, 1]},
        {"items": shown, "best_item": "i2", "worst_item": "i1"},
        {"items": shown, "declined": "skipped"},
    ]
    assert called(server, write(tmp_path / "a.jsonl", rows), "ranking", "--check") == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("i1 = i3 > i2", "i2 > ... > i1", "skipped"))


def test_orders_of_preflib_may_have_ties(server: RunningServer, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "votes.toi"
    names = "".join(f"# ALTERNATIVE NAME {number}: i{number}\n" for number in range(1, 5))
    path.write_text(f"# NUMBER VOTERS: 6\n{names}3: 3,{{1, 4}},2\n1: {{1,2}}\n2: {{3}},{{1}}\n", encoding="utf-8")
    assert called(server, path, "ranking") == 0
    assert client.get_study("ranking").imported_count == 5
    learned = client.get_preferences("ranking").items
    assert (learned[0].id, learned[-1].id) == ("i3", "i2")
    path.write_text(f"{names}1: 3,{{1, 4,2\n", encoding="utf-8")
    assert called(server, path, "ranking") == 1


def test_orders_of_preflib_are_answers_as_often_as_they_were_given(
    server: RunningServer, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "votes.soi"
    names = "".join(f"# ALTERNATIVE NAME {number}: i{number}\n" for number in range(1, 5))
    path.write_text(f"# NUMBER VOTERS: 9\n{names}2: 1\n4: 3,1,4\n3: 3, 2\n", encoding="utf-8")
    for flags in ["--check"], []:
        assert called(server, path, "ranking", *flags) == 0
        printed = capsys.readouterr().out
        assert "2 rows say nothing, because they order one item: they are left out" in printed
        assert "7 answers " in printed
    assert client.get_study("ranking").imported_count == 7
    assert client.get_preferences("ranking").items[0].id == "i3"


def test_a_run_of_trec_is_imported_to_the_depth_that_is_asked_for(
    server: RunningServer, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input.mine"
    scores = {"i1": 4, "i3": 3, "i4": 2, **{f"j{number}": 1 for number in range(20)}}
    path.write_text("".join(f"7 Q0 {item} 1 {score} mine\n" for item, score in scores.items()), encoding="utf-8")
    flags = ("--format", "trec-run", "--ignore", "query")
    assert called(server, path, "ranking", *flags) == 1
    assert "has 23 parts; there are 12 at most" in capsys.readouterr().err
    assert called(server, path, "ranking", *flags, "--depth", "3") == 0
    assert client.get_study("ranking").imported_count == 1
    assert client.get_preferences("ranking").items[0].id == "i1"
    assert called(server, path, "ranking", "--depth", "3") == 1
    assert "--depth: needs --format" in capsys.readouterr().err
