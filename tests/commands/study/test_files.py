"""A study's tables: what is read, and what is reported of a file that is wrong."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.client import AnswerKind
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.study.answer_files import AnswerFile
from topk_bandit.commands.study.files import (
    Answered,
    read_answers,
    read_described,
    read_lists,
    write_lists,
    write_preferences,
)
from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
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


OUT_OF_RANGE = "expected a finite number from -1e+06 to 1e+06"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "items.csv: has no header row"),
        ("item,price\n", "items.csv: has no rows"),
        ("name,price\ntea,1\n", "items.csv, line 1, header: expected a column 'item'; got name, price: name it so"),
        ("item,price\ntea,1\ntea,2\n", "items.csv, line 3, column 'item': 'tea' is there twice"),
        ("item,price\n,1\n", "items.csv, line 2, column 'item': is missing"),
        ("item,price\ntea\n", "items.csv, line 2, row: expected 2 cells, as the header has, got 1"),
        ("item,price\ntea,1,2\n", "items.csv, line 2, row: expected 2 cells, as the header has, got 3"),
        ("item,price\ntea,cheap\n", "items.csv, line 2, column 'price': expected a finite number, got 'cheap'"),
        (
            "item,price\ntea,1e9\n",
            f"items.csv, line 2, column 'price': {OUT_OF_RANGE}, got '1e9': write it in a larger unit",
        ),
        ("item,price\ntea,nan\n", "items.csv, line 2, column 'price': is missing"),
        ("item,price,price\ntea,1,2\n", "items.csv, line 1: column 'price' comes twice: rename one of them"),
    ],
)
def test_a_wrong_file_of_items_is_named_by_line_and_column(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_described(written(tmp_path, "items.csv", text), kind="item")
    assert str(caught.value) == problem


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.csv can't be read"):
        read_described(tmp_path / "nowhere.csv", kind="item")


def ranked(query: int, *items: int) -> Answered:
    return Answered(query, tuple((item,) for item in items))


def answers(
    path: Path, items: Described, queries: Described | None = None, kind: AnswerKind = AnswerKind.RANKING
) -> list[Answered]:
    return read_answers(AnswerFile(path, Named()), kind=kind, items=items, queries=queries)[0]


def test_answers_are_read_best_first(tmp_path: Path, items: Described, queries: Described) -> None:
    plain = written(tmp_path, "answers.csv", "item_1,item_2,item_3\ncocoa,tea,coffee\ntea,coffee,\n")
    assert answers(plain, items) == [ranked(0, 2, 0, 1), ranked(0, 0, 1)]
    asked = written(tmp_path, "asked.csv", "query,item_1,item_2\nsummer,tea,cocoa\n")
    assert answers(asked, items, queries, AnswerKind.PAIR) == [ranked(1, 0, 2)]
    chosen = written(tmp_path, "chosen.csv", "chosen,item_1,item_2,item_3\ncocoa,tea,coffee,cocoa\n")
    assert answers(chosen, items, kind=AnswerKind.CHOICE) == [Answered(0, ((2,), (0, 1)))]


def test_columns_are_found_by_their_names_in_any_order_beside_others(tmp_path: Path, items: Described) -> None:
    expected = [ranked(0, 2, 0, 1), ranked(0, 0, 1, 2)]
    for header, rows in (
        ("item_1,item_2,item_3", "cocoa,tea,coffee\ntea,coffee,cocoa"),
        ("item_3,item_1,item_2", "coffee,cocoa,tea\ncocoa,tea,coffee"),
        ("shop,item_1,item_2,item_3", "tea,cocoa,tea,coffee\n2,tea,coffee,cocoa"),
        (",item_1,item_2,item_3,,", "1,cocoa,tea,coffee,,\n2,tea,coffee,cocoa,,"),
        ("item_1; item_2; item_3", "cocoa; tea; coffee\ntea; coffee; cocoa"),
    ):
        path = written(tmp_path, "answers.csv", f"{header}\n{rows}\n")
        assert answers(path, items) == expected, header


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("item_1,item_2\ntea,milk\n", "line 2: there is no item 'milk': the file of items has no row of it"),
        ("item_1,item_2\ntea,Cocoa\n", "line 2: there is no item 'Cocoa': is it 'cocoa'?"),
        (
            "item_1,item_2,chosen\ntea,cocoa,1\n",
            "line 2, column 'chosen': '1' is none of the row's items: write the id of",
        ),
        (
            "item_1,item_2\ntea,7.0\n",
            "line 2, column 'item_2': expected a text, got '7.0', which may be a number: write 7",
        ),
        ("items\ntea|<NA>\n", "line 2, column 'items': part 2 of the list is missing: 'tea|<NA>'"),
        ("item_1,item_2\ntea,cocoa\ntea,tea\n", "line 3, column 'items': names the item 'tea' a second time"),
        ("item_1,item_2\ntea,\n", "line 2, column 'items': expected at least 2 items, got 1"),
        ('items\n"tea, cocoa"\n', "line 2, column 'items': expected at least 2 items, got 1: write its parts as a|b"),
        ("item_1,item_2,item_3\ntea,,cocoa\n", "line 2, column 'item_2': is missing, but item_3 is there"),
        ("query,item_1,item_2\nwinter,tea,cocoa\n", "line 2, column 'query': needs a file of queries: --queries"),
        ("tea,coffee\ncocoa,tea\n", "line 1, header: expected a column 'item_1' or 'items'; got tea, coffee"),
        (
            "choosen,item_1,item_2\n,cocoa,tea\n",
            "line 1, column 'choosen': means nothing; is it 'chosen'? Rename it, or",
        ),
        ("question,item_1,item_2\ncocoa,tea\n", "line 2, row: expected 3 cells, as the header has, got 2"),
        ("item_1,item_2\ntea,cocoa", "line 2: the last line has no end, so that the file may be cut: add a line"),
        ('item_1,item_2\ntea,"cocoa\n', 'line 2: a quote (") opens here and is not closed'),
    ],
)
def test_a_wrong_answer_is_named_by_line(tmp_path: Path, items: Described, text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        answers(written(tmp_path, "answers.csv", text), items, kind=AnswerKind.CHOICE)
    assert str(caught.value).startswith(f"answers.csv, {problem}")


def test_lines_are_those_of_the_file(tmp_path: Path, items: Described) -> None:
    text = '\n"item_1","item_2","a note,\nover two lines"\n\ntea,cocoa,\n\n\ntea,milk,\n'
    with pytest.raises(
        InvalidArgumentError,
        match=r"^answers.csv, line 8: there is no item 'milk': the file of items has no row of it$",
    ):
        answers(written(tmp_path, "answers.csv", text), items)


def test_ratings_are_read_by_their_places(tmp_path: Path, items: Described, queries: Described) -> None:
    path = written(tmp_path, "answers.csv", "query,item,rating\nsummer,cocoa,-1.5\n")
    assert answers(path, items, queries, AnswerKind.RATINGS) == [Answered(1, ((2,),), (-1.5,))]
    wide = "item_1,rating_1,item_2,rating_2,item_3,rating_3\ntea,1,,,cocoa,3\n"
    path = written(tmp_path, "answers.csv", wide)
    assert answers(path, items, kind=AnswerKind.RATINGS) == [Answered(0, ((0, 2),), (1.0, 3.0))]
    for text, problem in (
        ("item,rating\ncocoa,inf\n", "line 2, column 'rating': expected a finite number"),
        ("item,rating\ncocoa,-1e7\n", f"line 2, column 'rating': {OUT_OF_RANGE}, got '-1e7'"),
        ("item,stars\ncocoa,1\n", "line 2, column 'rating': is missing"),
        (wide.replace("tea,1,,,", "tea,1,coffee,,"), "line 2, column 'rating_2': is missing, but item_2 is there"),
        (wide.replace("tea,1,,,", "tea,1,,2,"), "line 2, column 'item_2': is missing, but rating_2 is there"),
    ):
        path = written(tmp_path, "answers.csv", text)
        with pytest.raises(InvalidArgumentError) as caught:
            answers(path, items, kind=AnswerKind.RATINGS)
        assert str(caught.value).startswith(f"answers.csv, {problem}")


def test_questions_can_be_read_back_as_answers(tmp_path: Path, items: Described, queries: Described) -> None:
    path = tmp_path / "questions.csv"
    write_lists(path, [(1, (2, 0)), (0, (1, 2))], first=("question", "12"), items=items, queries=queries)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines == ["question,query,item_1,item_2", "1,summer,cocoa,tea", "2,winter,coffee,cocoa"]
    assert answers(path, items, queries) == [ranked(1, 2, 0), ranked(0, 1, 2)]
    assert read_lists(path, fewest=2, items=items, queries=queries) == [(1, (2, 0)), (0, (1, 2))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("item_1,item_2\ntea,cocoa\ntea,coca\n", "line 3, column 'item_2': there is no item 'coca': is it 'cocoa'?"),
        ("item_1,item_2\ntea,\n", "line 2, column 'item_2': is missing"),
        ("item_1,item_2\ntea,tea\n", "line 2: has an item twice"),
        ("item_1\ntea\n", "line 1, header: expected the columns item_1 to item_2, as all lists"),
        ("item_1,item_2,Item_3\ntea,cocoa,milk\n", "line 1, header: column 'Item_3': a file of lists has item_1"),
        ("item_1,item_2,Query\ntea,cocoa,q\n", "line 1, header: column 'Query': a file of lists has item_1"),
        ("item_1,item_3\ntea,cocoa\n", "line 1, header: expected the columns item_1 to item_2, as all lists"),
        ("query,item_1,item_2\nsummer,tea,cocoa\n", "line 2, column 'query': needs a file of queries"),
        ("item_1,item_2\n", "has no rows"),
    ],
)
def test_a_wrong_list_is_named_by_line_and_column(tmp_path: Path, items: Described, text: str, problem: str) -> None:
    path = written(tmp_path, "lists.csv", text)
    with pytest.raises(InvalidArgumentError) as caught:
        read_lists(path, fewest=2, items=items, queries=None)
    assert problem in str(caught.value)


def test_a_longer_list_is_no_shorter_one(tmp_path: Path, items: Described) -> None:
    rows = '{"item_1": "tea", "item_2": "cocoa"}\n{"item_1": "tea", "item_2": "cocoa", "item_3": "coffee"}\n'
    path = written(tmp_path, "lists.jsonl", rows)
    with pytest.raises(InvalidArgumentError, match="line 2, header: expected the columns item_1 to item_2, as all"):
        read_lists(path, fewest=2, items=items, queries=None)


def test_lists_of_a_study_with_queries_name_theirs(tmp_path: Path, items: Described, queries: Described) -> None:
    path = written(tmp_path, "lists.jsonl", '{"item_1": "tea", "item_2": "cocoa"}\n')
    with pytest.raises(InvalidArgumentError, match="line 1, column 'query': is missing, because there are queries"):
        read_lists(path, fewest=2, items=items, queries=queries)


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


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"item": "tea", "rating": 5, "ratings": [4]}, "is there beside"),
        ({"item": "tea", "rating": 5, "rating_1": 3}, "is there beside"),
        ({"items": ["tea"], "item": "cocoa", "rating": 1}, "is there beside"),
        ({"ratings": {"tea": 1}, "item": "cocoa", "rating": 3}, "is there beside"),
        ({"ratings": {"tea": 1}, "items": ["cocoa"]}, "is there beside"),
        ({"item_1": "tea", "rating_1": 2, "rating": 9}, "is there beside"),
        ({"ratings": {}}, "is missing"),
        ({"items": ["tea"], "ratings": []}, "expected one for each item"),
        ({"item_0": "tea", "item_1": "cocoa", "rating_1": 1}, "there are 3 at most, from item_1 on"),
    ],
)
def test_ratings_that_are_said_in_two_ways_are_refused(
    tmp_path: Path, items: Described, row: dict[str, object], problem: str
) -> None:
    path = written(tmp_path, "answers.jsonl", json.dumps(row))
    with pytest.raises(InvalidArgumentError, match=problem):
        answers(path, items, kind=AnswerKind.RATINGS)


def test_a_pair_has_two_items_and_a_choice_that_nobody_made_is_none(tmp_path: Path, items: Described) -> None:
    three = written(tmp_path, "answers.jsonl", '{"items": ["tea", "coffee", "cocoa"]}')
    with pytest.raises(InvalidArgumentError, match="has 3 parts; there are 2 at most"):
        answers(three, items, kind=AnswerKind.PAIR)
    for text in ("item_1,item_2,chosen\ntea,cocoa,\n", "item_1,item_2,chosen\ntea,cocoa,milk\n"):
        with pytest.raises(InvalidArgumentError, match="column 'chosen'"):
            answers(written(tmp_path, "answers.csv", text), items, kind=AnswerKind.CHOICE)
    rows = '{"items": ["tea", "cocoa"], "chosen": "tea"}\n{"items": ["tea", "cocoa"], "Chosen": "cocoa"}\n'
    with pytest.raises(InvalidArgumentError, match="line 2, column 'Chosen': means nothing; is it 'chosen'"):
        answers(written(tmp_path, "answers.jsonl", rows), items, kind=AnswerKind.CHOICE)


WINNERS = ["winner", "Winner", "chosen_item", "itemChosen", "preferred", "BEST", "user choice", "response"]


@pytest.mark.parametrize("name", WINNERS)
def test_a_column_that_seems_to_say_what_was_chosen_is_never_passed_over_unasked(
    tmp_path: Path, items: Described, name: str
) -> None:
    path = written(tmp_path, "answers.csv", f"item_1,item_2,{name}\ntea,cocoa,cocoa\n")
    said = "seems to say which item was preferred, but means nothing"
    for kind, remedy in (
        (AnswerKind.PAIR, f"--column chosen={name}"),
        (AnswerKind.CHOICE, f"--column chosen={name}"),
        (AnswerKind.RANKING, "write the items best first"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            answers(path, items, kind=kind)
        assert f"column {name!r}: {said}: {remedy}, or pass it over: --ignore {name}" in str(caught.value)
    read = partial(read_answers, kind=AnswerKind.PAIR, items=items, queries=None)
    assert read(AnswerFile(path, Named.of([f"chosen={name}"])))[0] == [ranked(0, 2, 0)]
    assert read(AnswerFile(path, Named.of([], [name])))[0] == [ranked(0, 0, 2)]
    chosen = written(tmp_path, "answers.csv", f"item_1,item_2,{name},chosen\ntea,cocoa,tea,cocoa\n")
    assert answers(chosen, items, kind=AnswerKind.PAIR) == [ranked(0, 2, 0)]


def test_a_column_of_losers_or_ranks_is_no_column_of_what_was_chosen(tmp_path: Path, items: Described) -> None:
    for name in "loser", "itemRejected", "rank_1", "rating_2", "ratings", "order", "position", "score_1":
        path = written(tmp_path, "answers.csv", f"item_1,item_2,{name}\ntea,cocoa,tea\n")
        with pytest.raises(InvalidArgumentError, match=f"write the items best first, or pass it over: --ignore {name}"):
            answers(path, items, kind=AnswerKind.PAIR)
    path = written(tmp_path, "answers.csv", "item_1,item_2,ResponseId,window\ntea,cocoa,R_1,7\n")
    assert answers(path, items, kind=AnswerKind.PAIR) == [ranked(0, 0, 2)]


def test_a_choice_is_never_passed_over_where_people_rank(tmp_path: Path, items: Described) -> None:
    path = written(tmp_path, "answers.csv", "item_1,item_2,chosen\ntea,cocoa,cocoa\n")
    with pytest.raises(InvalidArgumentError, match="column 'chosen': seems to say which item was preferred"):
        answers(path, items, kind=AnswerKind.RANKING)


@pytest.mark.parametrize(
    ("columns", "missing", "kind"),
    [
        ("place_1,place_2,place_3", "place_1", AnswerKind.RANKING),
        ("places", "places", AnswerKind.RANKING),
        ("best_item,worst_item", "best_item", AnswerKind.RANKING),
        ("best_item", "best_item", AnswerKind.CHOICE),
        ("worst_item", "worst_item", AnswerKind.CHOICE),
        ("chosen", "chosen", AnswerKind.CHOICE),
        ("chosen,declined", "chosen", AnswerKind.CHOICE),
    ],
)
def test_a_row_that_nobody_answered_is_no_answer(
    tmp_path: Path, items: Described, columns: str, missing: str, kind: AnswerKind
) -> None:
    empty = "," * columns.count(",")
    path = written(tmp_path, "answers.csv", f"item_1,item_2,item_3,{columns}\ncocoa,tea,coffee,{empty}\n")
    with pytest.raises(InvalidArgumentError, match=f"answers.csv, line 2, column '{missing}': is missing"):
        answers(path, items, kind=kind)


def test_places_of_nothing_are_no_answer(tmp_path: Path, items: Described) -> None:
    path = written(tmp_path, "answers.jsonl", '{"items": ["tea", "cocoa"], "places": []}')
    with pytest.raises(InvalidArgumentError, match=r"answers\.jsonl, line 1, column 'places': is missing"):
        answers(path, items)


@pytest.mark.parametrize("name", ["votes", "Count", "weight", "n"])
@pytest.mark.parametrize("kind", AnswerKind)
def test_answers_that_were_counted_are_never_taken_for_one(
    tmp_path: Path, items: Described, name: str, kind: AnswerKind
) -> None:
    path = written(tmp_path, "answers.csv", f"item_1,item_2,rating_1,rating_2,{name}\ntea,cocoa,1,2,20\n")
    if kind is not AnswerKind.RATINGS:
        path = written(tmp_path, "answers.csv", f"item_1,item_2,{name}\ntea,cocoa,20\n")
    with pytest.raises(InvalidArgumentError, match=f"column '{name}': seems to say how many people answered so"):
        answers(path, items, kind=kind)
    assert read_answers(AnswerFile(path, Named.of([], [name])), items=items, queries=None, kind=kind)[0]


def test_features_are_those_of_all_rows(tmp_path: Path) -> None:
    for text in ('{"item":"a","f":1}\n{"item":"b","f":2,"g":3}\n', '{"item":"a"}\n{"item":"b","f":1}\n'):
        with pytest.raises(InvalidArgumentError, match=r"line 2, column '[fg]': is in one row and not in another"):
            read_described(written(tmp_path, "items.jsonl", text), kind="item")


def test_orders_of_preflib_are_complete_where_the_file_says_so(tmp_path: Path, items: Described) -> None:
    names = "# alternative name 1: tea\n# ALTERNATIVE NAME 2: coffee\n# Alternative Name 3: cocoa\n"
    whole = written(tmp_path, "votes.soc", f"{names}2: 3,1,2\n")
    assert answers(whole, items) == [ranked(0, 2, 0, 1)] * 2
    some = written(tmp_path, "votes.soi", f"# NUMBER VOTERS: 7\n{names}4: 2\n2: 3,1\n1: 1\n")
    found, read = read_answers(AnswerFile(some, Named()), kind=AnswerKind.RANKING, items=items, queries=None)
    assert found == [ranked(0, 2, 0)] * 2
    assert list(read.remarks("an answer")) == ["5 rows say nothing, because they order one item: they are left out"]
    for text, problem in (
        (f"{names}1: 3,1\n", "expected all 3 items, got 2"),
        (f"1: 3,1,2\n{names}", "names an item after the first order"),
        ("1: \u0663,1\n", "there is no item"),
    ):
        with pytest.raises(InvalidArgumentError, match=problem):
            answers(written(tmp_path, "votes.soc", text), items)
    with pytest.raises(InvalidArgumentError, match="line 4, column 'items': names the item 'cocoa' a second time"):
        answers(written(tmp_path, "votes.soi", f"{names}1: 3,3\n"), items)


@pytest.mark.parametrize("name", ["Unnamed: 0", "index", "X", "row_id", "id"])
def test_a_first_column_that_only_numbers_the_rows_is_no_feature(tmp_path: Path, name: str) -> None:
    for first in (0, 1):
        text = f"{name},item,price\n{first},tea,1\n{first + 1},coffee,2\n{first + 2},cocoa,2.5\n"
        with pytest.raises(
            InvalidArgumentError, match=rf"items\.csv, column '{name}': only numbers the rows: delete it"
        ):
            read_described(written(tmp_path, "items.csv", text), kind="item")
    for text in (
        f"{name},item,price\n3,tea,1\n1,coffee,2\n2,cocoa,2.5\n",
        f"item,{name},price\ntea,0,1\ncoffee,1,2\ncocoa,2,2.5\n",
        "sweetness,item,price\n0,tea,1\n1,coffee,2\n2,cocoa,2.5\n",
    ):
        assert read_described(written(tmp_path, "items.csv", text), kind="item").features.shape == (3, 2)


@pytest.mark.parametrize("name", ["x" * 129, "a\\nb"])
def test_a_name_that_no_call_takes_is_refused(tmp_path: Path, items: Described, name: str) -> None:
    path = written(tmp_path, "answers.jsonl", f'{{"item_1": "tea", "item_2": "cocoa", "respondent": "{name}"}}\n')
    with pytest.raises(InvalidArgumentError, match="respondent"):
        answers(path, items)
