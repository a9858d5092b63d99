"""`topk-bandit items load`: what a file changes in a catalogue is shown, and then it is what the catalogue says."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import PATIENCE

from topk_bandit.client import Client, Item, boolean, categorical, labels, numeric, vector
from topk_bandit.client.errors import DeadlineExceeded, ErrorDetails
from topk_bandit.commands.operate import item_loads

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.commands.running import Ask, Running

SCHEMA = [
    numeric("price"),
    boolean("new"),
    categorical("kind", values=["tea", "coffee"]),
    labels("tags", buckets=8),
    vector("look", dimension=2),
]
ROWS: list[dict[str, Any]] = [
    {
        "item": "tea",
        "available": True,
        "price": 2.5,
        "new": True,
        "kind": "tea",
        "tags": ["a", "b"],
        "look": [0.5, 1.0],
    },
    {"item": "oats", "available": False, "price": 1.0, "new": None, "kind": None, "tags": ["b"], "look": None},
    {"item": "ink", "available": None, "price": None, "new": False, "kind": "coffee", "tags": None, "look": [0.0, 2.0]},
]
LOADED = [
    Item("ink", features={"new": False, "kind": "coffee", "look": (0.0, 2.0)}),
    Item("oats", available=False, features={"price": 1.0, "tags": frozenset({"b"})}),
    Item(
        "tea",
        features={"price": 2.5, "new": True, "kind": "tea", "tags": frozenset({"a", "b"}), "look": (0.5, 1.0)},
    ),
]


@pytest.fixture
def shop(running: Running) -> Iterator[Client]:
    with Client(running.address, tenant="acme", timeout=PATIENCE) as client:
        client.create_bandit("shop", slate_size=2, item_capacity=12, item_schema=SCHEMA)
        yield client
        client.delete_bandit("shop")


def catalogue(client: Client) -> list[Item]:
    return list(client.items("shop"))


def as_cell(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(value)


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([names, *([as_cell(row.get(name)) for name in names] for row in rows)])
    else:
        parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow").Table
        parquet.write_table(table.from_pylist([{name: row.get(name) for name in names} for row in rows]), path)
    return str(path)


def words_of(lines: Sequence[str]) -> list[list[str]]:
    return [line.split() for line in lines]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_the_catalogue_is_what_the_file_says_and_a_second_time_changes_nothing(
    shop: Client, ask: Ask, tmp_path: Path, suffix: str
) -> None:
    file = write(tmp_path / f"items.{suffix}", ROWS)
    dry = ask("items", "load", "acme/shop", file, "--dry-run")
    assert dry[-1] == "nothing was sent"
    assert ["3", "added"] in words_of(dry)
    assert catalogue(shop) == []
    loaded = ask("items", "load", "acme/shop", file)
    assert loaded[:-1] == dry[:-1]
    assert loaded[-1] == "acme/shop: 3 items added or changed, 0 retired"
    assert catalogue(shop) == LOADED
    before = shop.stats("shop").log_position
    again = ask("items", "load", "acme/shop", file)
    assert words_of(again)[1:] == [["items", "change"], ["3", "unchanged"], again[-1].split()]
    assert (catalogue(shop), shop.stats("shop").log_position) == (LOADED, before)


def test_only_what_the_file_has_columns_for_changes(shop: Client, ask: Ask, tmp_path: Path) -> None:
    ask("items", "load", "acme/shop", write(tmp_path / "items.jsonl", ROWS))
    stock = write(tmp_path / "stock.csv", [{"item": "oats", "available": "yes"}, {"item": "tea", "available": "no"}])
    shown = words_of(ask("items", "load", "acme/shop", stock))
    assert shown[2:4] == [["1", "made", "unavailable"], ["1", "made", "available"]]
    prices = [{"item": "tea", "price": 3}, {"item": "ink", "price": None}, {"item": "salt", "price": 0.5}]
    shown = words_of(ask("items", "load", "acme/shop", write(tmp_path / "prices.csv", prices)))
    assert shown[2:5] == [["1", "added"], ["1", "changed"], ["1", "unchanged"]]
    assert ["tea", "changed", "price", "2.5", "->", "3"] in shown
    ink, oats, tea = LOADED
    assert catalogue(shop) == [
        ink,
        Item("oats", features=oats.features),
        Item("salt", features={"price": 0.5}),
        Item("tea", available=False, features={**tea.features, "price": 3.0}),
    ]


@pytest.mark.parametrize("nested", [False, True])
def test_a_row_of_json_changes_what_it_names(shop: Client, ask: Ask, tmp_path: Path, *, nested: bool) -> None:
    """A feed of changes says of each item what is new of it; null takes a value away."""
    ask("items", "load", "acme/shop", write(tmp_path / "items.jsonl", ROWS))
    price, kind = ({"features": one} if nested else one for one in ({"price": 5}, {"kind": None}))
    feed = [{"item": "oats", **price}, {"item": "tea", "available": False}, {"item": "ink", **kind}, {"item": "new"}]
    dry = words_of(ask("items", "load", "acme/shop", write(tmp_path / "feed.jsonl", feed), "--dry-run"))
    assert ["oats", "changed", "price", "1", "->", "5"] in dry
    ask("items", "load", "acme/shop", write(tmp_path / "feed.jsonl", feed))
    ink, oats, tea = LOADED
    assert catalogue(shop) == [
        Item("ink", features={name: value for name, value in ink.features.items() if name != "kind"}),
        Item("new"),
        Item("oats", available=False, features={**oats.features, "price": 5.0}),
        Item("tea", available=False, features=tea.features),
    ]


def test_a_mask_narrows_what_changes_or_has_whole_features_replaced(shop: Client, ask: Ask, tmp_path: Path) -> None:
    ask("items", "load", "acme/shop", write(tmp_path / "items.jsonl", ROWS))
    changed = [{"item": "tea", "available": False, "price": 9, "kind": "coffee"}]
    file = write(tmp_path / "changed.csv", changed)
    ask("items", "load", "acme/shop", file, "--mask=features.price")
    assert catalogue(shop)[2] == Item("tea", features={**LOADED[2].features, "price": 9.0})
    ask("items", "load", "acme/shop", file, "--mask=features")
    assert catalogue(shop)[2] == Item("tea", features={"price": 9.0, "kind": "coffee"})
    [problem] = ask("items", "load", "acme/shop", file, "--mask=features.prize", status=1)
    assert problem == "topk-bandit: --mask: the file has no column for 'features.prize': is it features.price?"


def test_features_in_an_object_and_columns_of_other_names(shop: Client, ask: Ask, tmp_path: Path) -> None:
    nested = [{"sku": "tea", "features": {"price": 1, "kind": "tea"}, "colour": "red"}, {"sku": "ink", "features": {}}]
    shown = ask("items", "load", "acme/shop", write(tmp_path / "n.jsonl", nested), "--column=item=sku")
    assert shown[0] == "columns that mean nothing to the bandit: colour"
    assert shown[1] == "parts that change: features.price, features.kind"
    assert catalogue(shop) == [Item("ink"), Item("tea", features={"price": 1.0, "kind": "tea"})]


def test_items_that_the_file_lacks_are_retired_by_who_says_yes(shop: Client, ask: Ask, tmp_path: Path) -> None:
    ask("items", "create", "acme/shop", "old", "older", "tea")
    file = write(tmp_path / "items.jsonl", ROWS)
    ask("items", "load", "acme/shop", file, "--dry-run", "--retire-missing")
    [problem] = ask("items", "load", "acme/shop", file, "--retire-missing", status=1)
    assert problem == "topk-bandit: --yes: 2 items are in no slate any more then, for good"
    assert len(catalogue(shop)) == 3
    shown = words_of(ask("items", "load", "acme/shop", file, "--retire-missing", "--yes"))
    assert shown[2:5] == [["2", "added"], ["1", "changed"], ["2", "retired"]]
    assert catalogue(shop) == LOADED


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"item": "a", "price": 1}, {"item": "b", "price": "cheap"}], "items.csv, line 3, column 'price': expected"),
        ([{"item": "a"}, {"item": "a"}], "items.csv, line 3, item: 'a' is there twice"),
        ([{"item": "a", "available": "perhaps"}], "items.csv, line 2, column 'available': expected"),
        ([{"item": "a", "look": [1.0]}], "items.csv, line 2, column 'look': expected 2 numbers"),
        ([{"item": "a" * 129}], "items.csv, line 2, item_id: "),
        ([{"item": "", "price": 1}], "items.csv, line 2, column 'item': is missing"),
        ([{"sku": "a"}], "items.csv, line 1, header: expected a column 'item'"),
        ([{"item": "a", "prise": 1}], "items.csv, line 1, column 'prise': means nothing; is it 'price'?"),
        ([{"item": f"i{n}"} for n in range(13)], "FILE: 13 items need room before others are retired"),
    ],
)
def test_a_bad_file_changes_nothing_and_its_row_and_column_are_named(
    shop: Client, ask: Ask, tmp_path: Path, rows: list[dict[str, Any]], problem: str
) -> None:
    refused = ask("items", "load", "acme/shop", write(tmp_path / "items.csv", rows), status=1)
    assert refused[-1].startswith(f"topk-bandit: {problem}")
    assert catalogue(shop) == []


def test_features_need_a_schema(ask: Ask, tmp_path: Path) -> None:
    file = write(tmp_path / "items.csv", [{"item": "tea", "features.price": 1}])
    [problem] = ask("items", "load", "acme/home", file, status=1)
    assert "column 'features.price': can't be used: the bandit has no item_schema" in problem


def test_at_most_twenty_examples_are_shown(running: Running, ask: Ask, tmp_path: Path) -> None:
    with Client(running.address, tenant="acme", timeout=PATIENCE) as client:
        client.create_bandit("wide", slate_size=2, item_capacity=99)
        file = write(tmp_path / "items.jsonl", [{"item": f"i{n:02}"} for n in range(30)])
        shown = ask("items", "load", "acme/wide", file, "--dry-run")
        client.delete_bandit("wide")
    assert sum(line.startswith("i") and "added" in line for line in shown) == 20
    assert shown[-2:] == ["... and 10 more", "nothing was sent"]


def load(run: Callable[..., subprocess.CompletedProcess[str]], running: Running, file: str) -> tuple[list[str], str]:
    """Run a load that fails; return what it printed, and what it failed with."""
    done = run("items", "load", "acme/shop", file, TOPK_BANDIT_ADDRESS=running.address)
    assert done.returncode == 1
    return done.stdout.splitlines(), done.stderr


def test_a_call_that_is_refused_is_known_to_have_changed_nothing(
    running: Running,
    shop: Client,
    run: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(item_loads, "_ITEMS_PER_CALL", 2)
    shop.upsert_items("shop", ["i3"])
    shop.retire_items("shop", ["i3"])
    printed, problem = load(run, running, write(tmp_path / "items.jsonl", [{"item": f"i{n}"} for n in range(5)]))
    assert printed[-1] == "2 of 5 changes are in place, and none of the other 3: change the file, and run it again"
    assert "i3 was retired" in problem
    assert [item.item_id for item in catalogue(shop)] == ["i0", "i1"]


def test_after_a_call_without_an_answer_it_says_what_is_unknown_and_the_same_file_ends_it(
    running: Running,
    shop: Client,
    run: Callable[..., subprocess.CompletedProcess[str]],
    ask: Ask,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write(tmp_path / "items.jsonl", [{"item": f"i{n}"} for n in range(5)])
    calls, upsert = iter([False, True]), Client.upsert_items

    def lose_the_second_answer(client: Client, *given: Any, **named: Any) -> int:  # noqa: ANN401
        count = upsert(client, *given, **named)
        if next(calls):
            raise DeadlineExceeded(ErrorDetails("DEADLINE_EXCEEDED", "too late"))
        return count

    with monkeypatch.context() as changed:
        changed.setattr(item_loads, "_ITEMS_PER_CALL", 2)
        changed.setattr(Client, "upsert_items", lose_the_second_answer)
        printed, problem = load(run, running, file)
    assert printed[-1] == (
        "2 of 5 changes are in place; whether the next 2 are is unknown, and 1 were not sent: "
        "run it again, which sends what is missing then"
    )
    assert "too late" in problem
    assert words_of(ask("items", "load", "acme/shop", file))[2:4] == [["1", "added"], ["4", "unchanged"]]
    assert catalogue(shop) == [Item(f"i{n}") for n in range(5)]


def test_a_catalogue_that_changes_meanwhile_keeps_what_the_file_does_not_name(
    shop: Client, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask is applied where items are stored, not where the difference was shown."""
    ask("items", "load", "acme/shop", write(tmp_path / "items.jsonl", ROWS))
    upsert = Client.upsert_items

    def after_another(client: Client, *given: Any, **named: Any) -> int:  # noqa: ANN401
        upsert(client, "shop", [Item("tea", available=False)], mask=["available"])
        return upsert(client, *given, **named)

    monkeypatch.setattr(Client, "upsert_items", after_another)
    ask("items", "load", "acme/shop", write(tmp_path / "prices.csv", [{"item": "tea", "price": 4}]))
    assert catalogue(shop)[2] == Item("tea", available=False, features={**LOADED[2].features, "price": 4.0})


def test_short_floats_are_those_that_are_written(shop: Client, ask: Ask, tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = {"item": ["tea", "ink"], "price": arrow.array([2.1, math.nan], arrow.float32())}
    parquet.write_table(arrow.table(rows), tmp_path / "items.parquet")
    ask("items", "load", "acme/shop", str(tmp_path / "items.parquet"))
    assert catalogue(shop) == [Item("ink"), Item("tea", features={"price": 2.1})]
