"""A study's tables: what is read, and what is told about a file that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.commands.study.files import (
    Answered,
    read_described,
    read_orders,
    read_ratings,
    write_preferences,
    write_questions,
)
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.preferences.utilities import Utilities

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.commands.study.files import Described

ITEMS = "item,price,sweet\ntea,1,0\ncoffee,2,0.5\ncocoa,2.5,1\n"
QUERIES = "query,cold\nwinter,1\nsummer,0\n"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def items(tmp_path: Path) -> Described:
    return read_described(written(tmp_path, "items.csv", ITEMS), kind="item")


@pytest.fixture
def queries(tmp_path: Path) -> Described:
    return read_described(written(tmp_path, "queries.csv", QUERIES), kind="query")


def test_items_are_read_with_their_features(items: Described) -> None:
    assert items.ids == ("tea", "coffee", "cocoa")
    np.testing.assert_array_equal(items.features, [[1, 0], [2, 0.5], [2.5, 1]])


def test_spreadsheets_are_read_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_bytes(b'\xef\xbb\xbfitem , price\r\ntea , 1 \r\n,\r\n"coffee, black",2\r\n')
    read = read_described(path, kind="item")
    assert read.ids == ("tea", "coffee, black")
    np.testing.assert_array_equal(read.features, [[1], [2]])


def test_items_without_features_each_have_one_of_their_own(tmp_path: Path) -> None:
    read = read_described(written(tmp_path, "items.csv", "item\ntea\ncoffee\n"), kind="item")
    np.testing.assert_array_equal(read.features, np.eye(2))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "items.csv: expected a header row"),
        ("name,price\ntea,1\n", "items.csv, first column: expected 'item', got 'name'"),
        ("item,price\ntea,1\ntea,2\n", "items.csv, line 3: 'tea' is there twice"),
        ("item,price\n,1\n", "items.csv, line 2: the item has no id"),
        ("item,price\ntea\n", "items.csv, line 2: expected 1 numbers, got 0"),
        ("item,price\ntea,1,2\n", "items.csv, line 2: expected 1 numbers, got 2"),
        ("item,price\ntea,cheap\n", "items.csv, line 2, column 'price': expected a finite number, got 'cheap'"),
        ("item,price\ntea,nan\n", "items.csv, line 2, column 'price': expected a finite number, got 'nan'"),
    ],
)
def test_a_wrong_file_of_items_is_told_by_line_and_column(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_described(written(tmp_path, "items.csv", text), kind="item")
    assert str(caught.value).endswith(problem)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"nowhere.csv: can't be read"):
        read_described(tmp_path / "nowhere.csv", kind="item")


def test_answers_are_read_best_first(tmp_path: Path, items: Described, queries: Described) -> None:
    plain = written(tmp_path, "answers.csv", "first,second,third\ncocoa,tea,coffee\ntea,coffee,\n")
    assert read_orders(plain, items=items, queries=None) == [Answered(0, (2, 0, 1)), Answered(0, (0, 1))]
    asked = written(tmp_path, "asked.csv", "query,first,second\nsummer,tea,cocoa\n")
    assert read_orders(asked, items=items, queries=queries, most=2) == [Answered(1, (0, 2))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("first,second\ntea,milk\n", "line 2: there is no item 'milk'"),
        ("first,second\ntea,cocoa\ntea,tea\n", "line 3: item 'tea' occurs twice"),
        ("first,second\ntea,\n", "line 2: expected at least 2 items, got 1"),
        ("query,first\nwinter,tea\n", "first column: 'query' needs a file of queries"),
    ],
)
def test_a_wrong_answer_is_told_by_line(tmp_path: Path, items: Described, text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_orders(written(tmp_path, "answers.csv", text), items=items, queries=None)
    assert str(caught.value) == f"answers.csv, {problem}"


def test_lines_are_those_of_the_file(tmp_path: Path, items: Described) -> None:
    text = '\n"first","second,\nthat is worse"\n\ntea,cocoa\n\n\ntea,milk\n'
    with pytest.raises(InvalidArgumentError, match=r"^answers.csv, line 8: there is no item 'milk'$"):
        read_orders(written(tmp_path, "answers.csv", text), items=items, queries=None)


@pytest.mark.parametrize("first", ["tea,coffee", "Tee,coffee", "1,tea,coffee"])
def test_a_file_without_a_header_loses_no_answer(tmp_path: Path, items: Described, first: str) -> None:
    path = written(tmp_path, "answers.csv", f"{first}\ncocoa,tea\n")
    with pytest.raises(
        InvalidArgumentError, match=r"^answers.csv, first row: '(tea|coffee)' is an item; expected a head"
    ):
        read_orders(path, items=items, queries=None)
    with pytest.raises(
        InvalidArgumentError, match=r"^answers.csv, first row: '(tea|coffee)' is an item; expected a head"
    ):
        read_ratings(path, items=items, queries=None)


def test_items_may_be_called_like_the_columns_of_questions(tmp_path: Path) -> None:
    items = read_described(written(tmp_path, "items.csv", "item\nitem_1\nitem_2\n"), kind="item")
    path = tmp_path / "questions.csv"
    write_questions(path, [(0, (1, 0))], items=items, queries=None)
    assert read_orders(path, items=items, queries=None) == [Answered(0, (1, 0))]


def test_a_pair_has_two_items(tmp_path: Path, items: Described) -> None:
    path = written(tmp_path, "answers.csv", "a,b,c\ntea,coffee,cocoa\n")
    with pytest.raises(InvalidArgumentError, match=r"^answers.csv, line 2: expected 2 items, got 3$"):
        read_orders(path, items=items, queries=None, most=2)


def test_queries_must_be_known(tmp_path: Path, items: Described, queries: Described) -> None:
    path = written(tmp_path, "answers.csv", "query,first,second\nspring,tea,cocoa\n")
    with pytest.raises(InvalidArgumentError, match=r"^answers.csv, line 2: there is no query 'spring'$"):
        read_orders(path, items=items, queries=queries)


def test_ratings_are_read(tmp_path: Path, items: Described, queries: Described) -> None:
    path = written(tmp_path, "answers.csv", "query,item,rating\nsummer,cocoa,-1.5\n")
    assert read_ratings(path, items=items, queries=queries) == [Answered(1, (2,), -1.5)]
    path = written(tmp_path, "answers.csv", "item,rating\ncocoa,inf\n")
    with pytest.raises(InvalidArgumentError, match=r"^answers.csv, line 2, column 'rating': expected a finite number"):
        read_ratings(path, items=items, queries=None)
    path = written(tmp_path, "answers.csv", "item,stars\ncocoa,1\n")
    with pytest.raises(InvalidArgumentError, match=r"^answers.csv, columns: expected 'item' and 'rating'"):
        read_ratings(path, items=items, queries=None)


def test_questions_can_be_read_back_as_answers(tmp_path: Path, items: Described, queries: Described) -> None:
    path = tmp_path / "questions.csv"
    write_questions(path, [(1, (2, 0)), (0, (1, 2))], items=items, queries=queries)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines == ["question,query,item_1,item_2", "1,summer,cocoa,tea", "2,winter,coffee,cocoa"]
    assert read_orders(path, items=items, queries=queries) == [Answered(1, (2, 0)), Answered(0, (1, 2))]


def test_preferences_are_written_best_first(tmp_path: Path, items: Described) -> None:
    path = tmp_path / "preferences.csv"
    learned = Utilities(np.array([0.5, -1.25, 2.0]), np.array([0.1, 0.2, 0.3]))
    write_preferences(path, [learned], items=items, queries=None)
    assert path.read_text(encoding="utf-8").splitlines() == [
        "item,utility,standard_deviation,rank",
        "cocoa,2,0.3,1",
        "tea,0.5,0.1,2",
        "coffee,-1.25,0.2,3",
    ]
