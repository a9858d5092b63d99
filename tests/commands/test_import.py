"""`topk-bandit import`: rows of files in three formats, as a service gets them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import shlex
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.rpc.harness import serving
from tests.waiting import PATIENCE

from topk_bandit.client import Client, boolean, categorical, labels, numeric, vector
from topk_bandit.commands.cli import main
from topk_bandit.domain.bandits import RewardRange
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Features
from topk_bandit.store.events import PastSlate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.rpc.harness import RunningServer
    from tests.rpc.shop import Shop

SCHEMA = [
    numeric("price", log=True),
    boolean("member"),
    categorical("country", values=["DE"]),
    labels("tags", values=["new"]),
    vector("taste", dimension=2),
]
FULL = {
    "items": ["a", "b"],
    "reward": 0.5,
    "time": "2026-01-31T12:00:00Z",
    "propensity": 0.25,
    "price": 3.0,
    "member": True,
    "country": "DE",
    "tags": ["new", "x"],
    "taste": [0.5, -1.0],
}
BARE = {"items": ["b", "a"], "reward": 0.0}
SLATES = (
    PastSlate(
        Features.of({"price": 3.0, "member": True, "country": "DE", "tags": ("new", "x"), "taste": (0.5, -1.0)}),
        ("a", "b"),
        0.5,
        1_769_860_800_000,
        0.25,
    ),
    PastSlate((), ("b", "a"), 0.0),
)


@pytest.fixture(scope="module")
def stocked() -> Shop:
    """Have a bandit with a schema and items, and one without, as each test finds them."""
    with serving() as running:
        with Client(running.target, tenant="shop", timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=2, item_capacity=9, context_schema=SCHEMA)
            client.create_bandit("plain", slate_size=2, item_capacity=9, context_dimension=2)
            client.upsert_items("home", ["a", "b", "gone", "[/b]", "[red]"])
            client.retire_items("home", ["gone"])
        return running.shop


@pytest.fixture
def server(stocked: Shop) -> Iterator[RunningServer]:
    with serving(deepcopy(stocked)) as running:
        yield running


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows([as_text(row.get(name)) for name in names] for row in rows)
    else:
        parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow").Table
        parquet.write_table(table.from_pylist([{name: row.get(name) for name in names} for row in rows]), path)
    return path


def as_text(value: object) -> str:
    if value is None:
        return ""
    return "|".join(map(str, value)) if isinstance(value, list) else str(value)


def called(server: RunningServer, path: Path, *flags: str, bandit: str = "shop/home") -> int:
    return main(["import", bandit, str(path), "--address", server.target, *flags])


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_files_of_each_format_say_the_same(server: RunningServer, tmp_path: Path, suffix: str) -> None:
    assert called(server, write(tmp_path / f"year.{suffix}", [FULL, BARE])) == 0
    [sent] = server.shop.sent
    assert (sent.rows, sent.first_row, sent.next_row, sent.skips) == (SLATES, 0, 2, False)


def sent_values(server: RunningServer) -> list[Any]:
    return [getattr(row, "item_values", row) for row in server.shop.sent[-1].rows]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_object_has_what_items_did(server: RunningServer, tmp_path: Path, suffix: str) -> None:
    rows = [
        {**BARE, "item_values": {"a": 1.0, "b": 0.5}},
        {**BARE, "item_values": {"a": 2.0, "b": None}},
        {**BARE, "item_values": None},
        {**BARE, "item_values": {"a": None, "b": None}},
    ]
    assert called(server, write(tmp_path / f"year.{suffix}", rows)) == 0
    assert sent_values(server) == [(0.5, 1.0), (None, 2.0), None, None]


def test_a_map_of_parquet_has_what_items_did(server: RunningServer, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = arrow.array([[("a", 1.0)], [], None], arrow.map_(arrow.string(), arrow.float64()))
    table = arrow.table({"items": [["a", "b"]] * 3, "reward": [1.0] * 3, "item_values": values})
    parquet.write_table(table, tmp_path / "year.parquet")
    assert called(server, tmp_path / "year.parquet") == 0
    assert sent_values(server) == [(1.0, None), None, None]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_columns_have_what_the_items_did_by_position(server: RunningServer, tmp_path: Path, suffix: str) -> None:
    rows = [
        {**BARE, "item_value_1": 1.0, "item_value_2": 0.5},
        {**BARE, "item_value_1": None, "clicked": -2.0},
        BARE,
    ]
    assert called(server, write(tmp_path / f"year.{suffix}", [*rows[:1], BARE])) == 0
    assert sent_values(server) == [(1.0, 0.5), None]
    assert called(server, write(tmp_path / f"month.{suffix}", rows[1:]), "--column=item_value_2=clicked") == 0
    assert sent_values(server) == [(None, -2.0), None]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"item_values": {"a": "x"}}, "column 'item_values': 'a': expected a finite number, got 'x'"),
        ({"item_values": [1.0, 2.0]}, "column 'item_values': expected an object, got [1.0, 2.0]"),
        ({"item_value_1": "x"}, "column 'item_value_1': expected a finite number, got 'x'"),
        ({"item_value_1": 1, "item_values": {"a": 1}}, "column 'item_values': says what item_value_1 says, too"),
        ({"item_value_3": 1}, "column 'item_value_3': there are 2 at most, from item_value_1 on"),
        ({"item_values_1": 1}, "column 'item_values_1': means nothing; is it 'item_value_1'?"),
    ],
)
def test_what_items_can_not_have_done_is_named(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, Any], problem: str
) -> None:
    assert called(server, write(tmp_path / "year.jsonl", [{**BARE, **row}])) == 1
    assert problem in capsys.readouterr().err
    assert not server.shop.sent


def test_a_check_shows_what_the_items_did(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**BARE, "item_values": {"a": 1.0, "b": 0.25}}, BARE, {**BARE, "item_values": {"c": 1.0}}]
    assert called(server, write(tmp_path / "year.jsonl", rows), "--check") == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "what the items did" in said
    assert "a 1, b 0.25" in said
    assert 'line 5, item_values["c"]: is no item of the slate that was shown' in said
    assert called(server, write(tmp_path / "year.jsonl", [BARE]), "--check") == 0
    assert "what the items did" not in capsys.readouterr().out


@pytest.mark.parametrize("flags", [(), ("--check",), ("--skip-bad-rows",), ("--check", "--skip-bad-rows")])
def test_item_values_that_the_data_version_does_not_have_are_refused_before_anything_is_sent(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    server.shop.data_version = 1
    bare = write(tmp_path / "bare.jsonl", [BARE] * 2)
    assert called(server, bare, *flags) == 0
    server.shop.sent.clear()
    rows = [*[BARE] * 1_500, {**BARE, "item_values": {"a": 1.0}}]
    assert called(server, write(tmp_path / "year.jsonl", rows), *flags) == 1
    assert "item_values needs data version 2, and 1 is in force" in capsys.readouterr().err
    assert not server.shop.sent


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_columns_can_have_other_names_and_be_several(server: RunningServer, tmp_path: Path, suffix: str) -> None:
    row = {"item_1": "a", "shown_second": "b", "margin": 0.5, "at": 1_769_860_800, "features.price": 3, "land": "DE"}
    flags = [f"--column={one}" for one in ("item_2=shown_second", "reward=margin", "time=at", "country=land")]
    assert called(server, write(tmp_path / f"year.{suffix}", [row]), *flags) == 0
    features = Features.of({"price": 3.0, "country": "DE"})
    assert server.shop.sent[0].rows == (replace(SLATES[0], context=features, propensity=None),)


def test_features_may_be_an_object_and_times_have_a_zone_or_none(server: RunningServer, tmp_path: Path) -> None:
    rows = [
        {**BARE, "features": {"price": 3, "tags": []}, "time": "2026-01-31T14:00:00+02:00"},
        {**BARE, "features": {}, "country": "DE", "time": "2026-01-31 12:00"},
    ]
    assert called(server, write(tmp_path / "year.jsonl", rows)) == 0
    first, second = server.shop.sent[0].rows
    assert first.context == Features.of({"price": 3.0, "tags": ()})
    assert second.context == Features.of({"country": "DE"})
    assert first.at_ms == second.at_ms == SLATES[0].at_ms


@pytest.mark.parametrize(
    ("kind", "value", "at_ms"),
    [
        (lambda arrow: arrow.timestamp("ns", "UTC"), 1_769_860_800_123_456_789, 1_769_860_800_123),
        (lambda arrow: arrow.timestamp("ns"), 1_769_860_800_123_456_789, 1_769_860_800_123),
        (lambda arrow: arrow.timestamp("ms", "Europe/Berlin"), 1_769_860_800_123, 1_769_860_800_123),
        (lambda arrow: arrow.date32(), 20_484, 1_769_817_600_000),
    ],
)
def test_parquet_has_times_and_texts_of_several_kinds(
    server: RunningServer, tmp_path: Path, kind: Callable[[Any], Any], value: int, at_ms: int
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"item_1": [b"a"], "item_2": arrow.array(["b"]).dictionary_encode(), "reward": [0.5], "country": [b"DE"]}
    path = tmp_path / "year.parquet"
    parquet.write_table(arrow.table({**columns, "time": arrow.array([value], kind(arrow))}), path)
    assert called(server, path) == 0
    [row] = server.shop.sent[0].rows
    assert (row.at_ms, row.slate, row.context) == (at_ms, ("a", "b"), Features.of({"country": "DE"}))


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_bandit_without_a_schema_gets_contexts(server: RunningServer, tmp_path: Path, suffix: str) -> None:
    rows = [{**BARE, "context": [0.5, -1.0]}, {**BARE, "context_1": 2.0, "context_2": 3.0}]
    assert called(server, write(tmp_path / f"year.{suffix}", rows), bandit="tenants/shop/bandits/plain") == 0
    assert [row.context for row in server.shop.sent[0].rows] == [(0.5, -1.0), (2.0, 3.0)]


def test_the_same_file_again_sends_nothing_and_an_interrupted_one_goes_on(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "year.jsonl", [{**BARE, "reward": n} for n in range(2500)])
    server.shop.faults["import_rows"] = InvalidArgumentError("rows[1].reward", "is odd")
    assert called(server, path) == 1
    assert "year.jsonl, line 3, reward: is odd" in capsys.readouterr().err
    del server.shop.faults["import_rows"]
    assert called(server, path) == 0
    assert [(part.first_row, len(part.rows)) for part in server.shop.sent] == [(0, 1000), (1000, 1000), (2000, 500)]
    assert called(server, path) == 0
    assert len(server.shop.sent) == 3
    assert "0 rows imported, 0 left out; 2500 were imported before" in capsys.readouterr().out
    [import_id] = {part.import_id for part in server.shop.sent}
    longer = write(tmp_path / "corrected.jsonl", [{**BARE, "reward": n} for n in range(2501)])
    assert called(server, longer, "--import-id", import_id) == 0
    assert [row.reward for row in server.shop.sent[3].rows] == [2500.0]
    shorter = write(tmp_path / "other.jsonl", [BARE] * 4)
    assert called(server, shorter, "--import-id", import_id) == 1
    problem = "--import-id: the file has 4 rows, and the import took 2501: it is another file"
    assert problem in capsys.readouterr().err
    assert called(server, longer) == 0
    assert len({part.import_id for part in server.shop.sent}) == 2


BAD = [
    ({"items": ["a", "b"]}, "column 'reward'", "is missing"),
    ({**BARE, "reward": "much"}, "column 'reward'", "expected a finite number, got 'much'"),
    ({**BARE, "time": "yesterday"}, "column 'time'", "expected a time of 2000 to 2100 such as"),
    ({**BARE, "member": "perhaps"}, "column 'member'", "expected true or false"),
    ({**BARE, "taste": 3}, "column 'taste'", "expected a list"),
    ({**BARE, "features": 3}, "column 'features'", "expected an object"),
    ({**BARE, "price": True}, "column 'price'", "expected a finite number"),
    ({**BARE, "reward": 10**400}, "column 'reward'", "expected a finite number"),
    ({**BARE, "time": True}, "column 'time'", "expected a time of 2000 to 2100 such as"),
    ({**BARE, "country": ["DE"]}, "column 'country'", "expected a text, got ['DE']"),
    ({**BARE, "country": "\ud800"}, "row", "has half of a character"),
    ({**BARE, "tags": ["new", {}]}, "column 'tags'", "expected a text, got {}"),
]


@pytest.mark.parametrize(("bad", "column", "problem"), BAD)
def test_a_bad_row_is_named_before_anything_is_sent(
    server: RunningServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bad: dict[str, Any],
    column: str,
    problem: str,
) -> None:
    assert called(server, write(tmp_path / "year.jsonl", [*[BARE] * 1200, bad])) == 1
    printed = capsys.readouterr().err
    assert f"year.jsonl, line 2401, {column}: {problem}" in printed
    assert server.shop.sent == []


def test_bad_rows_can_be_left_out_and_are_counted(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "year.jsonl", [BARE, {"items": ["a", "b"]}, {**BARE, "propensity": 7.0}, FULL])
    path.write_text(path.read_text(encoding="utf-8") + "[1]\n{\n", encoding="utf-8")
    assert called(server, path, "--skip-bad-rows") == 0
    [sent] = server.shop.sent
    assert (len(sent.rows), sent.next_row, sent.skips) == (2, 6, True)
    printed = capsys.readouterr().out
    assert "year.jsonl, line 3, column 'reward': is missing" in printed
    assert "year.jsonl, line 5, column 'propensity': must be above 0" in printed
    assert "year.jsonl, line 9, row: is a list: write one object in each line" in printed
    assert "2 rows imported, 4 left out" in printed
    assert called(server, path, "--skip-bad-rows") == 0
    printed = capsys.readouterr().out
    assert "0 rows imported, 0 left out; 2 were imported and 4 left out before: import" in printed


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("year.txt", b"", "expected one that ends in .jsonl, .csv, .tsv, .parquet; got 'year.txt'"),
        ("votes.soc", b"", "got 'votes.soc': it has orders, which a study takes: topk-bandit study import"),
        ("year.csv.gz", b"", "got 'year.csv.gz': unpack it first"),
        ("year.xlsx", b"", "got 'year.xlsx': save it as CSV"),
        ("year.csv", gzip.compress(b"items,reward\n", mtime=0), "year.csv: is packed: unpack it first"),
        ("year.parquet", b"PK\x03\x04", "year.parquet: is packed: unpack it first"),
        ("year.csv", b"items,items\na,b\n", "year.csv, line 1: column 'items' comes twice"),
        ("year.csv", b"\nitems,rewart\na|b,1\n", "year.csv, line 2, column 'rewart': means nothing; is it 'reward'?"),
        ("year.csv", b"items,land\na|b,1\n", "year.csv, line 1, header: expected a column 'reward'"),
        ("year.csv", b"items,reward\n" + b"a|b,1\n" * 5000 + b"a|\xff,1\n", "year.csv, line 5002: is no text in UTF-8"),
        ("year.csv", b"reward,items\n0.5\n", "line 2, row: expected 2 cells, as the header has, got 1"),
        ("year.csv", b"reward,items\n\xff,a\n", "year.csv, line 2: is no text in UTF-8"),
        ("year.csv", b"items,land\na|b,1\n", "got items, land: name one so in the file, or say --column reward=COLUMN"),
        ("year.jsonl", b'{"a":' * 10**5, "line 1, row: is JSON inside JSON, too deep to be read"),
        ("year.parquet", b"PAR?", "is no whole Parquet file"),
        ("absent.csv", None, "can't be read"),
    ],
)
def test_files_that_can_not_be_read_are_reported(
    server: RunningServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    problem: str,
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert called(server, tmp_path / name) == 1
    assert problem in capsys.readouterr().err


def test_columns_that_mean_nothing_are_reported(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(server, write(tmp_path / "year.csv", [{**BARE, "order_id": 7, "item_3": ""}])) == 0
    assert "columns that mean nothing to the bandit: order_id, item_3" in capsys.readouterr().out


def test_what_is_wrong_with_the_call_is_reported(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "year.jsonl", [BARE])
    for flags, bandit, problem in (
        ((), "shop/absent", "NOT_FOUND"),
        ((), "shop", "must be TENANT/BANDIT"),
        (("--column", "reward"), "shop/home", "expected NAME=COLUMN"),
        (("--key-file", str(tmp_path / "absent")), "shop/home", "can't be read"),
    ):
        assert called(server, path, *flags, bandit=bandit) == 1
        assert problem in capsys.readouterr().err
    assert datetime.fromtimestamp(SLATES[0].at_ms / 1000, UTC).isoformat() == "2026-01-31T12:00:00+00:00"


def test_a_dry_run_shows_what_is_understood_and_sends_nothing(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "year.jsonl", [FULL, {**BARE, "order_id": 7}])
    assert called(server, path, "--check") == 0
    printed = capsys.readouterr().out
    for expected in (
        "columns that mean nothing to the bandit: order_id",
        "times from 2026-01-31 12:00 to 2026-01-31 12:00 UTC; 1 rows have none, and count as of now",
        "2 rows can be imported, 0 can't; nothing was sent",
    ):
        assert expected in printed
    assert "passed" in printed  # in a table whose cells may be broken
    path.write_text(path.read_text(encoding="utf-8") + '{"items": ["a"]}\n', encoding="utf-8")
    for flags, status, what in (("--check",), 1, "can't be taken"), (("--check", "--skip-bad-rows"), 0, "left out"):
        assert called(server, path, *flags) == status
        printed = capsys.readouterr().out
        assert f"{what}: year.jsonl, line 5, column 'items': expected 2 items, got 1" in printed
        assert "2 rows can be imported, 1 can't; nothing was sent" in printed
    assert server.shop.sent == []


@pytest.mark.parametrize("flags", [(), ("--check",)])
def test_a_file_whose_rows_are_all_bad_is_refused_though_bad_rows_are_left_out(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    path = write(tmp_path / "year.csv", [{**BARE, "reward": reward} for reward in ("0,5", "1,5")])
    assert called(server, path, "--skip-bad-rows", *flags) == 1
    printed = capsys.readouterr()
    assert "year.csv, line 2, column 'reward': expected a finite number, got '0,5'" in printed.out + printed.err
    assert server.shop.sent == []


@pytest.mark.parametrize("name", ["out", "out.csv"])
def test_a_folder_is_refused_with_a_file_that_is_in_it(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "_SUCCESS").touch()
    assert called(server, tmp_path / name) == 1
    assert f"{name} is a folder: name a file in it, one after the other" in capsys.readouterr().err
    write(tmp_path / name / "part-0.csv", [BARE])
    assert called(server, tmp_path / name) == 1
    assert f"{name} is a folder: name a file in it, such as part-0.csv, one after the other" in capsys.readouterr().err


def test_columns_of_parquet_that_are_ignored_are_not_read(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "year.parquet", [{**BARE, "comment": "spoilt"}])
    chunk = pytest.importorskip("pyarrow.parquet").ParquetFile(path).metadata.row_group(0).column(2)
    assert chunk.path_in_schema == "comment"
    content, begin = bytearray(path.read_bytes()), chunk.dictionary_page_offset
    content[begin : begin + 20] = b"\xff" * 20
    path.write_bytes(content)
    assert called(server, path) == 1
    assert "year.parquet: can't be read after row 0" in capsys.readouterr().err
    assert called(server, path, "--ignore", "comment") == 0
    assert len(server.shop.sent[0].rows) == 1


def test_columns_of_parquet_with_values_that_mean_nothing_are_passed_over(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, rows = tmp_path / "year.parquet", {"item_1": ["a", "a"], "item_2": ["b", "b"], "reward": [0.0, 1.0]}
    numbers = arrow.array([7, 10**15])
    odd = {
        "span": numbers.cast(arrow.duration("ns")),
        "clock": numbers.cast(arrow.time64("ns"), safe=False),
        "far": numbers.cast(arrow.timestamp("s")),
        "nowhere": numbers.cast(arrow.timestamp("us", "No/Where")),
        "twice": arrow.StructArray.from_arrays([numbers, numbers], names=["a", "a"]),
        "map": arrow.array([[("a", 1), ("a", 2)], None], arrow.map_(arrow.string(), arrow.int64())),
        "nested": arrow.array([[1_769_860_800_123_456_789], None], arrow.list_(arrow.timestamp("ns"))),
    }
    parquet.write_table(arrow.table({**rows, **odd}), path)
    assert called(server, path) == 0
    assert f"columns that mean nothing to the bandit: {', '.join(odd)}" in capsys.readouterr().out
    for name in ("span", "map"):
        assert called(server, path, f"--column=country={name}", "--check") == 1
        assert f"year.parquet, row 1, column '{name}': expected a text, got a value of" in capsys.readouterr().out
    assert called(server, path, "--column=time=far", "--check") == 1
    assert "row 2, column 'far': expected a time of 2000 to 2100" in capsys.readouterr().out


def test_floats_of_parquet_have_the_digits_with_which_they_are_written(server: RunningServer, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    single = arrow.float32()
    columns = {
        "item_1": ["a", "a"],
        "item_2": ["b", "b"],
        "reward": arrow.array([0.1, 16_777_216.0], single),
        "country": arrow.array([0.1, None], single).dictionary_encode(),
        "tags": arrow.array([[0.1, 2.0], []], arrow.list_(single)),
        "taste": arrow.array([[0.1, 1e-30], [3.0, -0.7]], arrow.list_(single, 2)),
        "features": arrow.array([{"price": 0.3}, {"price": math.nan}], arrow.struct([("price", single)])),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "year.parquet")
    assert called(server, tmp_path / "year.parquet") == 0
    first, second = server.shop.sent[0].rows
    expected = {"price": 0.3, "country": "0.1", "tags": ("0.1", "2"), "taste": (0.1, 1e-30)}
    assert (first.reward, first.context) == (0.1, Features.of(expected))
    assert (second.reward, second.context) == (16_777_216.0, Features.of({"tags": (), "taste": (3.0, -0.7)}))


def test_short_floats_of_a_map_are_as_those_of_a_column(server: RunningServer, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = arrow.array([[("price", 0.1)]], arrow.map_(arrow.string(), arrow.float32()))
    country = arrow.array([[("country", 0.1)]], arrow.map_(arrow.string(), arrow.float32()))
    path = tmp_path / "year.parquet"
    for column, expected in ((features, 0.1), (country, "0.1")):
        parquet.write_table(arrow.table({"items": [["a", "b"]], "reward": [1.0], "features": column}), path)
        assert called(server, path, f"--import-id={type(expected).__name__}") == 0
        context = server.shop.sent[-1].rows[0].context
        assert isinstance(context, Features)
        assert [value for _, value in context.values] == [expected]


@pytest.mark.parametrize(("number", "bits"), [(2.0**24, 32), (2.0**24 + 2, 32), (2.0**11, 16)])
def test_a_short_float_that_may_be_another_number_is_no_id(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: float, bits: int
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ids = arrow.array([number], {16: arrow.float16(), 32: arrow.float32()}[bits])
    path = tmp_path / "year.parquet"
    parquet.write_table(arrow.table({"item_1": ids, "item_2": ["b"], "reward": [1.0]}), path)
    assert called(server, path, "--check") == 1
    assert "year.parquet, row 1, column 'item_1'" in capsys.readouterr().out


def test_a_map_of_parquet_may_have_the_features(server: RunningServer, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = arrow.array([[("price", 3.0)]], arrow.map_(arrow.string(), arrow.float64()))
    path = tmp_path / "year.parquet"
    parquet.write_table(arrow.table({"items": [["a", "b"]], "reward": [1.0], "features": features}), path)
    assert called(server, path) == 0
    assert server.shop.sent[0].rows[0].context == Features.of({"price": 3.0})


@pytest.mark.parametrize("flags", [(), ("--check",)])
def test_values_that_the_bandit_does_not_know_are_counted(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    with Client(server.target, tenant="shop", timeout=PATIENCE) as client:
        schema = [categorical("country", values=["DE"]), labels("tags", values=["new"]), labels("hashed", buckets=4)]
        client.create_bandit("reporting", slate_size=2, item_capacity=9, context_schema=[*schema, boolean("member")])
        client.upsert_items("reporting", ["a", "b"])
    rows = [
        {**BARE, "country": "DE", "tags": "new", "hashed": "a|b", "member": True},
        {**BARE, "country": "de", "tags": "new|old", "hashed": "garden, kitchen"},
        {**BARE, "country": "FR", "tags": "new; old", "hashed": "tea"},
        {**BARE, "hashed": "nan|NA"},
        BARE,
    ]
    assert called(server, write(tmp_path / "year.csv", rows), *flags, bandit="shop/reporting") == 0
    printed = capsys.readouterr().out
    for expected in (
        "feature 'country': 2 rows have what the bandit does not know, such as 'de'",
        "feature 'tags': 2 rows have what the bandit does not know, such as 'old'",
        "feature 'tags': 1 rows have one label that looks like several, such as 'new; old': write its parts as a|b, or",
        "feature 'hashed': 1 rows have one label that looks like several, such as 'garden, kitchen': write",
        "is there 2 times, and taken as it is: write nothing where a text is missing",
    ):
        assert expected in printed
    assert printed.count("feature '") == 5


def test_rows_that_count_for_nothing_are_counted(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(server.target, tenant="shop", timeout=PATIENCE) as client:
        client.create_bandit("fading", slate_size=2, item_capacity=9, half_life=timedelta(days=90))
        client.upsert_items("fading", ["a", "b"])
    rows = [
        {**BARE, "time": time} for time in ("2003-01-31", "2004-01-31", "2098-01-01", datetime.now(UTC).isoformat())
    ]
    assert called(server, write(tmp_path / "year.jsonl", rows), "--check", bandit="shop/fading") == 0
    printed = capsys.readouterr().out
    assert "2 rows are older than 7 half-lives of the bandit: they count for nothing" in printed
    assert "1 rows have a time in the future: they count as of now" in printed


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--column=contry=land"], "--column: the bandit has no 'contry': is it 'country'?"),
        (["--column=country=lnd"], "--column: the file has no column 'lnd': is it 'land'?"),
        (["--column=country=land", "--column=country=reward"], "--column: 'country' is there twice"),
        (["--column=country=land", "--column=price=land"], "--column: 'land' is there twice"),
        (["--ignore=lond"], "--ignore: the file has no column 'lond'; it has item_1, item_2, land"),
        (["--ignore=zzz"], "--ignore: the file has no column 'zzz'; it has item_1, item_2, land, reward"),
        (["--column=reward=rewardd"], "--column: the file has no column 'rewardd': is it 'reward'?"),
        (["--column=reward=margin"], "--column: the file has no column 'margin'; it has item_1, item_2, land, reward"),
    ],
)
def test_a_flag_that_would_have_no_effect_is_refused(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], problem: str
) -> None:
    for suffix in ("csv", "parquet"):
        path = write(tmp_path / f"year.{suffix}", [{"item_1": "a", "item_2": "b", "reward": 1, "land": "DE"}])
        for more in ([], ["--skip-bad-rows"], ["--check"]):
            assert called(server, path, *flags, *more) == 1
            printed = capsys.readouterr()
            assert problem in printed.err
            assert not printed.out
    assert server.shop.sent == []


def test_a_column_with_a_name_that_is_nearly_right_is_passed_over_only_if_that_is_said(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "year.csv", [{"item_1": "a", "item_2": "b", "reward": 1, "contry": "DE"}])
    for flags in ((), ("--skip-bad-rows",), ("--check",)):
        assert called(server, path, *flags) == 1
        assert "line 1, column 'contry': means nothing; is it 'country'?" in capsys.readouterr().err
    assert called(server, path, "--ignore", "contry") == 0
    assert server.shop.sent[0].rows[0].context == ()


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        ("item 3", "item_3"),
        ("Items.3", "item_3"),
        ("probability", "propensity"),
        ("pscore", "propensity"),
        ("country_1", "country"),
        ("reward.1", "reward"),
        ("Reward ", "reward"),
        (" country", "country"),
        ("reward_duplicated_0", "reward"),
    ],
)
def test_a_column_that_stands_for_another_is_passed_over_only_if_that_is_said(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str, meant: str
) -> None:
    path = write(tmp_path / "year.jsonl", [{"item_1": "a", "item_2": "b", "reward": 1, column: "0.5"}])
    assert called(server, path) == 1
    problem = f"means nothing; is it {meant!r}? Rename it, or pass it over: --ignore {shlex.quote(column)}"
    assert f"column {column!r}: {problem}" in capsys.readouterr().err
    assert called(server, path, "--ignore", column) == 0
    assert len(server.shop.sent[0].rows) == 1


def test_a_column_may_be_taken_for_another_that_is_there(server: RunningServer, tmp_path: Path) -> None:
    path = write(tmp_path / "year.csv", [{**BARE, "reward": 1, "Reward": 2, "margin": 3}])
    assert called(server, path, "--column", "reward=margin") == 0
    assert server.shop.sent[0].rows[0].reward == 3.0


def test_feedback_of_the_open_bandit_pipeline_is_slates(server: RunningServer, tmp_path: Path) -> None:
    with Client(server.target, tenant="shop", timeout=PATIENCE) as client:
        client.create_bandit("one", slate_size=1, item_capacity=9, context_schema=SCHEMA)
    single = (
        ",timestamp,item_id,position,click,propensity_score,country\n"
        "0,2026-01-31 12:00:00+00:00,a,3,1,0.25,DE\n"
        "1,2026-01-31 12:00:00+00:00,b,1,0,0.5,\n"
    )
    (tmp_path / "all.csv").write_text(single, encoding="utf-8")
    assert called(server, tmp_path / "all.csv", "--format", "obp", bandit="shop/one") == 0
    assert server.shop.sent[0].rows == (
        PastSlate(Features.of({"country": "DE"}), ("a",), 1.0, SLATES[0].at_ms, 0.25),
        PastSlate((), ("b",), 0.0, SLATES[0].at_ms, 0.5),
    )
    slates = "slate_id,position,action,reward,pscore\n7,1,b,0.5,0.10\n7,0,a,1,0.1\n8,0,b,0,0.2\n8,1,a,2,0.2\n"
    (tmp_path / "slates.csv").write_text(slates, encoding="utf-8")
    assert called(server, tmp_path / "slates.csv", "--format", "obp") == 0
    assert server.shop.sent[1].rows == (
        PastSlate((), ("a", "b"), 1.5, None, 0.1),
        PastSlate((), ("b", "a"), 2.0, None, 0.2),
    )


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("action,reward,pscore\na,1,0.1\n", "column 'slate_id': is missing: rows are slates of one without it"),
        ("slate_id,position,action,reward\n7,0,a,1\n7,0,b,1\n", "column 'position': is the same twice in one slate"),
        ("slate_id,position,action,reward\n7,0,a,1\n7,x,b,1\n", "column 'position': expected a finite number"),
        ("slate_id,position,action,item_id,reward\n7,0,a,a,1\n", "column 'action': says what 'item_id' says, too"),
        ("slate_id,position,action,reward\n7,0,a,1\n7,1,b,\n", "column 'reward': is missing"),
        ("slate_id,position,action,reward\n7,0,a,1\n7,2,b,1\n", "column 'position': must count from 0 or 1 on"),
        ("slate_id,position,action,reward\n,0,a,1\n,1,b,1\n", "column 'slate_id': is missing"),
        ("slate_id,position,action,reward,pscore\n7,0,a,1,.5\n7,1,b,1,.2\n", "column 'pscore': differs"),
        ("slate_id,position,action,reward,pscore\n7,0,a,1,2\n7,1,b,1,2\n", "column 'pscore': must be above 0"),
        ("slate_id,position,action,reward,timestamp\n7,0,a,1,soon\n7,1,b,1,soon\n", "column 'timestamp': expected"),
        ("slate_id,position,item,click\n7,0,a,x\n7,1,b,1\n", "column 'click': expected a finite number, got 'x'"),
        ("slate_id,position,action\n7,0,a\n7,1,b\n", "column 'click' or 'reward': is missing"),
        ("slate_id,position,action,reward,country\n7,0,a,1,DE\n7,1,b,1,FR\n", "column 'country': differs"),
        ("slate_id,position,action,reward\n7,0,a,1\n7,1,,1\n", "column 'action': is missing at position 2"),
        ("slate_id,position,action,reward\n7,0,7,1\n7,1,8.0,1\n", "column 'action': expected a text, got '8.0', which"),
    ],
)
def test_feedback_that_is_no_slate_is_named(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, problem: str
) -> None:
    (tmp_path / "all.csv").write_text(rows, encoding="utf-8")
    assert called(server, tmp_path / "all.csv", "--format", "obp") == 1
    assert f"all.csv, line 2, {problem}" in capsys.readouterr().err


def test_a_feature_that_is_called_as_a_column_of_rows_needs_its_prefix(server: RunningServer, tmp_path: Path) -> None:
    with Client(server.target, tenant="shop", timeout=PATIENCE) as client:
        schema = [categorical("time", buckets=4), categorical("x_1", buckets=4)]
        client.create_bandit("odd", slate_size=2, item_capacity=9, context_schema=schema)
    row = {**BARE, "time": "2026-01-31T12:00:00Z", "features.time": "evening", "x_1": "a", "x_2": "stranger"}
    assert called(server, write(tmp_path / "year.csv", [row]), bandit="shop/odd") == 0
    [sent] = server.shop.sent[0].rows
    assert (sent.at_ms, sent.context) == (SLATES[0].at_ms, Features.of({"time": "evening", "x_1": "a"}))


def test_a_dry_run_knows_which_rewards_the_bandit_takes(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(server.target, tenant="shop", timeout=PATIENCE) as client:
        client.delete_bandit("plain")
        for name, clamp in (("refusing", False), ("clamping", True)):
            limits = RewardRange(0.0, 1.0, clamp=clamp)
            client.create_bandit(name, slate_size=2, item_capacity=9, context_dimension=1, reward_range=limits)
            client.upsert_items(name, ["a", "b"])
    path = write(tmp_path / "year.csv", [{**BARE, "reward": reward} for reward in (-1, 0, 1, 2)])
    assert called(server, path, "--check", bandit="shop/refusing") == 1
    printed = capsys.readouterr().out
    assert "can't be taken: year.csv, line 5, reward: must be from 0.0 to 1.0, the bandit's reward_range" in printed
    assert "2 rows can be imported, 2 can't; nothing was sent" in printed
    assert called(server, path, "--check", bandit="shop/clamping") == 0
    printed = capsys.readouterr().out
    assert "2 rewards are outside of the bandit's reward_range: they are learned as its ends" in printed
    assert "4 rows can be imported, 0 can't; nothing was sent" in printed


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({**BARE, "items": ["a"]}, "column 'items': expected 2 items, got 1"),
        ({**BARE, "items": ["a", "b", "c"]}, "column 'items': has 3 parts; there are 2 at most"),
        ({**BARE, "propensity": 7}, "column 'propensity': must be above 0 and at most 1, not 7"),
        ({**BARE, "taste": [1, 2, 3]}, "column 'taste': expected 2 numbers, got 3"),
        ({**BARE, "items": ["a", "gone"]}, "item_ids[1]: is no item of the bandit, or retired: 'gone'"),
        ({**BARE, "items": ["a", "c"]}, "item_ids[1]: is no item of the bandit, or retired: 'c'"),
        ({**BARE, "items": ["a", "a"]}, "item_ids[1]: repeats item_ids[0]: 'a'"),
        ({**BARE, "items": ["a", "x" * 200]}, "item_ids[1]: has 200 characters; at most 128 are allowed"),
        ({**BARE, "reward": 1e200}, "reward: must be a finite number from"),
        ({**BARE, "price": 1e200}, "column 'price': expected a finite number from -1e+100 to 1e+100, got 1e+200"),
        ({**BARE, "features": {"rice": 1}}, 'features["rice"]: is not in the schema'),
        ({**BARE, "features": {"rice": [1, "a"]}}, 'features["rice"]: '),
        ({**BARE, "items": None, "item_0": "a", "item_1": "b"}, "column 'item_0': there are 2 at most, from item_1 on"),
    ],
)
def test_a_dry_run_knows_what_the_bandit_takes(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, Any], problem: str
) -> None:
    assert called(server, write(tmp_path / "year.jsonl", [BARE, row, BARE]), "--check") == 1
    printed = capsys.readouterr().out
    assert f"can't be taken: year.jsonl, line 3, {problem}" in printed
    assert "2 rows can be imported, 1 can't; nothing was sent" in printed
    assert server.shop.sent == []


def test_texts_that_look_like_markup_are_shown_as_they_are(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {**BARE, "items": ["[/b]", "[red]"], "[/x]": 1, "country": "[/i]"}
    assert called(server, write(tmp_path / "year.jsonl", [row]), "--check") == 0
    printed = capsys.readouterr().out
    assert "[/x]" in printed
    assert "[red]" in printed


def test_feedback_has_its_columns_by_flags_before_it_is_joined(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "slate_id,position,action,reward,margin,time,propensity\n"
    text += "1,0,a,1,10,2026-01-31T12:00:00Z,0.3\n1,1,b,2,20,2026-01-31T12:00:00Z,0.3\n"
    (tmp_path / "all.csv").write_text(text, encoding="utf-8")
    assert called(server, tmp_path / "all.csv", "--format", "obp", "--column", "reward=marginn") == 1
    assert "--column: the file has no column 'marginn': is it 'margin'?" in capsys.readouterr().err
    assert called(server, tmp_path / "all.csv", "--format", "obp", "--column", "reward=margin") == 0
    assert server.shop.sent[0].rows == (PastSlate((), ("a", "b"), 30.0, SLATES[0].at_ms, 0.3),)


@pytest.mark.parametrize(
    ("bandit", "rows", "problem"),
    [
        ("home", "1,0,a 1,1,b 2,0,b 2,1,a 1,0,a 1,1,b", "line 6, column 'slate_id': '1' was there before"),
        ("one", "1,0,a 2,0,b 1,1,b 2,1,a", "line 4, column 'slate_id': '1' was there before"),
    ],
)
def test_the_rows_of_a_slate_of_feedback_stand_together(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], bandit: str, rows: str, problem: str
) -> None:
    with Client(server.target, tenant="shop", timeout=PATIENCE) as client:
        client.create_bandit("one", slate_size=1, item_capacity=9)
    lines = ["slate_id,position,action,reward", *(f"{row},1" for row in rows.split()), ""]
    (tmp_path / "all.csv").write_text("\n".join(lines), encoding="utf-8")
    assert called(server, tmp_path / "all.csv", "--format=obp", bandit=f"shop/{bandit}") == 1
    assert problem in capsys.readouterr().err
    assert not server.shop.sent


def test_ids_of_slates_of_feedback_are_texts_and_nothing_may_be_missing_alike(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"slate_id": 1, "position": n, "action": item, "reward": 1, "time": math.nan} for n, item in enumerate("ab")
    ]
    assert called(server, write(tmp_path / "all.jsonl", rows), "--format=obp") == 0
    [slate] = server.shop.sent[-1].rows
    assert isinstance(slate, PastSlate)
    assert (slate.slate, slate.reward, slate.at_ms) == (("a", "b"), 2.0, None)
    for slate_id, problem in ((True, "items': expected 2 items"), ([1], "column 'slate_id': expected a text")):
        changed = [{**rows[0], "slate_id": slate_id}, {**rows[1], "slate_id": slate_id if slate_id == [1] else 1}]
        assert called(server, write(tmp_path / "odd.jsonl", changed), "--format=obp") == 1
        assert problem in capsys.readouterr().err
