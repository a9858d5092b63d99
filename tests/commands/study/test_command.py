"""`topk-bandit study` as a person uses it: two files in, questions, a ranking with its spread and a figure out."""

from __future__ import annotations

import csv
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.commands.cli import main

if TYPE_CHECKING:
    from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n"


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def save(path: Path, table: list[list[str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(table)
    return path


class Shop:
    """Items and queries with features, and people whose utilities are linear in these."""

    def __init__(self, folder: Path, *, n_queries: int = 0) -> None:
        rng = np.random.default_rng(7)
        self.features = rng.normal(size=(12, 4))
        self.queries = rng.normal(size=(n_queries, 2)) if n_queries else np.ones((1, 1))
        self.utilities = 2.0 * self.queries @ rng.normal(size=(self.queries.shape[1], 4)) @ self.features.T
        self._rng = rng
        numbers = [[f"item-{i}", *map(str, row)] for i, row in enumerate(self.features.tolist())]
        self.words = [f"--items={save(folder / 'items.csv', [['item', 'a', 'b', 'c', 'd'], *numbers])}"]
        if n_queries:
            numbers = [[f"query-{i}", *map(str, row)] for i, row in enumerate(self.queries.tolist())]
            self.words.append(f"--queries={save(folder / 'queries.csv', [['query', 'a', 'b'], *numbers])}")
        self.n_queries = n_queries

    def rankings(self, questions: list[list[str]]) -> list[list[str]]:
        """Fill in a file of questions: each list in the order of a Plackett-Luce draw."""
        first = 2 if self.n_queries else 1
        return [questions[0], *([*row[:first], *self._ordered(row, first)] for row in questions[1:])]

    def _ordered(self, row: list[str], first: int) -> list[str]:
        query = int(row[1].removeprefix("query-")) if self.n_queries else 0
        places = [int(item.removeprefix("item-")) for item in row[first:]]
        noisy = self.utilities[query, places] + self._rng.gumbel(size=len(places))
        return [row[first:][place] for place in np.argsort(-noisy)]


def correlation(preferences: list[list[str]], truth: np.ndarray) -> float:
    learned = {row[-4]: float(row[-3]) for row in preferences}
    return float(np.corrcoef([learned[f"item-{i}"] for i in range(len(truth))], truth)[0, 1])


def test_from_items_to_questions_to_a_ranking_with_its_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop, out = Shop(tmp_path), tmp_path / "new" / "study"
    assert main(["study", "ask", *shop.words, "--size=4", "--count=60", f"--out={out}"]) == 0
    questions = rows(out / "questions.csv")
    assert questions[0] == ["question", "item_1", "item_2", "item_3", "item_4"]
    assert len(questions) == 61
    assert all(len(set(row[1:])) == 4 for row in questions[1:])
    answers = save(tmp_path / "answers.csv", shop.rankings(questions))
    capsys.readouterr()

    words = ["--size=4", "--count=5", f"--answers={answers}", f"--out={out}"]
    assert main(["study", "run", *shop.words, *words]) == 0
    preferences = rows(out / "preferences.csv")
    assert preferences[0] == ["item", "utility", "standard_deviation", "rank"]
    assert [row[3] for row in preferences[1:]] == [str(rank) for rank in range(1, 13)]
    assert all(0.0 < float(row[2]) < 1.0 for row in preferences[1:])
    assert correlation(preferences[1:], shop.utilities[0]) > 0.95
    assert (out / "preferences.png").read_bytes().startswith(PNG)
    assert len(rows(out / "questions.csv")) == 6
    printed = capsys.readouterr().out
    assert preferences[1][0] in printed
    assert re.search(r"^\d\d\.\d% of [\d,]+ pairs of answers about the same two items agree\.$", printed, re.MULTILINE)
    assert "So far 92% of what 65 such questions can tell is known." in printed


def test_only_lists_of_a_file_are_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = [np.random.default_rng(seed).choice(12, 3, replace=False) for seed in range(30)]
    lists = [[f"item-{item}" for item in one] for one in drawn]
    path = save(tmp_path / "lists.csv", [["item_1", "item_2", "item_3"], *lists])
    words = ["study", "ask", *Shop(tmp_path).words, f"--lists={path}", f"--out={tmp_path}"]
    assert main(words) == 0
    given = {frozenset(one) for one in lists}
    assert {frozenset(row[1:]) for row in rows(tmp_path / "questions.csv")[1:]} <= given
    header, *design = rows(tmp_path / "design.csv")
    assert header == ["weight", "item_1", "item_2", "item_3"]
    assert {frozenset(row[1:]) for row in design} <= given
    assert sum(float(row[0]) for row in design) == pytest.approx(1.0, abs=1e-9)
    capsys.readouterr()
    for wrong in ("--size=4", "--kind=pair"):
        assert main([*words, wrong]) == 1
        size = 4 if wrong == "--size=4" else 2
        assert f"--lists: expected lists of {size} items, got 3" in capsys.readouterr().err


def test_who_answers_at_random_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop, rng = Shop(tmp_path), np.random.default_rng(3)
    assert main(["study", "ask", *shop.words, "--size=4", "--count=80", f"--out={tmp_path}"]) == 0
    header, *answers = shop.rankings(rows(tmp_path / "questions.csv"))
    both = zip(["ann", "bob", "cal", "rnd"] * 20, answers, strict=True)
    said = [[name, *(rng.permutation(row[1:]) if name == "rnd" else row[1:])] for name, row in both]
    path = save(tmp_path / "answers.csv", [["respondent", *header[1:]], *said])
    capsys.readouterr()
    assert main(["study", "learn", *shop.words, f"--answers={path}", f"--out={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "1 of 4 respondents answered as if at random, so that their answers hardly count: rnd.\n" in printed
    header, first, *others = rows(tmp_path / "respondents.csv")
    assert (header, first[:2]) == (["respondent", "answers", "careless"], ["rnd", "20"])
    assert sorted(row[0] for row in others) == ["ann", "bob", "cal"]


def test_no_file_that_is_read_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Questions that were filled in where they stood are a shop's answers: the next questions take another place."""
    shop = Shop(tmp_path)
    assert main(["study", "ask", *shop.words, f"--out={tmp_path}"]) == 0
    answers = save(tmp_path / "questions.csv", shop.rankings(rows(tmp_path / "questions.csv")))
    before = answers.read_bytes()
    capsys.readouterr()
    assert main(["study", "run", *shop.words, f"--answers={answers}", f"--out={tmp_path}"]) == 1
    assert f"--answers: {answers} would be overwritten" in capsys.readouterr().err
    assert answers.read_bytes() == before
    assert not (tmp_path / "preferences.csv").exists()
    assert main(["study", "learn", *shop.words, f"--answers={answers}", f"--out={tmp_path}"]) == 0
    assert main(["study", "run", *shop.words, f"--answers={answers}", f"--out={tmp_path / 'next'}"]) == 0


def test_a_file_of_respondents_is_left_where_nobody_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path)
    assert main(["study", "ask", *shop.words, f"--out={tmp_path}"]) == 0
    answers = save(tmp_path / "answers.csv", shop.rankings(rows(tmp_path / "questions.csv")))
    (tmp_path / "respondents.csv").write_text("respondent,email\nann,ann@shop.test\n")
    assert main(["study", "learn", *shop.words, f"--answers={answers}", f"--out={tmp_path}"]) == 0
    assert (tmp_path / "respondents.csv").read_text() == "respondent,email\nann,ann@shop.test\n"
    assert f"{tmp_path / 'respondents.csv'} is not of these answers\n" in capsys.readouterr().out


def test_items_that_are_not_asked_about_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", "ask", *Shop(tmp_path).words, f"--out={tmp_path}"]
    assert main(words) == 0
    assert "12 of 12 items are in these lists.\n" in capsys.readouterr().out
    assert main([*words, "--size=2", "--features-alone"]) == 0
    printed = capsys.readouterr().out
    assert "of 12 items are in these lists. Of the others only what their features tell will be known." in printed


def test_utilities_depend_on_the_query(tmp_path: Path) -> None:
    shop, out = Shop(tmp_path, n_queries=3), tmp_path
    assert main(["study", "ask", *shop.words, "--count=80", f"--out={out}"]) == 0
    answers = save(tmp_path / "answers.csv", shop.rankings(rows(out / "questions.csv")))
    assert main(["study", "learn", *shop.words, f"--answers={answers}", f"--out={out}"]) == 0
    preferences = rows(out / "preferences.csv")
    for query in range(3):
        of_query = [row for row in preferences[1:] if row[0] == f"query-{query}"]
        assert correlation(of_query, shop.utilities[query]) > 0.8


@pytest.mark.parametrize("kind", ["choice", "pair", "ratings"])
def test_other_kinds_of_answers(tmp_path: Path, kind: str) -> None:
    shop, size = Shop(tmp_path), 2 if kind == "pair" else 3
    words = [*shop.words, f"--kind={kind}", f"--out={tmp_path}"]
    assert main(["study", "ask", *words, "--count=150"]) == 0
    questions = rows(tmp_path / "questions.csv")
    assert len(questions[1]) == 1 + size
    filled = shop.rankings(questions)
    if kind == "ratings":
        rated = [item for row in questions[1:] for item in row[1:]]
        numbers = [str(3.0 + shop.utilities[0, int(item.removeprefix("item-"))]) for item in rated]
        filled = [["item", "rating"], *map(list, zip(rated, numbers, strict=True))]
    answers = save(tmp_path / "answers.csv", filled)
    assert main(["study", "learn", *words, f"--answers={answers}"]) == 0
    preferences = rows(tmp_path / "preferences.csv")
    assert correlation(preferences[1:], shop.utilities[0]) > 0.9
    if kind == "ratings":
        assert abs(float(preferences[1][1]) - (3.0 + shop.utilities.max())) < 0.1


def test_the_same_files_give_the_same_questions(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for folder in ("first", "second"):
        assert main(["study", "ask", *shop.words, f"--out={tmp_path / folder}"]) == 0
    first, second = (tmp_path / folder / "questions.csv" for folder in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("word", ["ask", "run"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--size=1"], "--size: expected 2 to 12 items, got 1"),
        (["--size=13"], "--size: expected 2 to 12 items, got 13"),
        (["--items=/nowhere.csv"], "/nowhere.csv can't be read"),
        (["--out=/dev/null/study"], "--out: /dev/null/study can't be made"),
    ],
)
def test_a_wrong_call_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, words: list[str], problem: str
) -> None:
    answers = save(tmp_path / "answers.csv", [["item_1", "item_2"], ["item-1", "item-2"]])
    given = ["study", word, *Shop(tmp_path).words, f"--out={tmp_path / 'out'}", *words]
    assert main([*given, f"--answers={answers}"] if word == "run" else given) == 1
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_answer_that_is_wrong_leaves_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = Shop(tmp_path)
    (tmp_path / "preferences.csv").write_text("of yesterday", encoding="utf-8")
    answers = save(tmp_path / "answers.csv", [["item_1", "item_2"], ["item-1", "item-1"]])
    assert main(["study", "learn", *shop.words, f"--answers={answers}", f"--out={tmp_path / 'out'}"]) == 1
    assert not (tmp_path / "out").exists()
    assert "answers.csv, line 2, column 'items': names the item 'item-1' a second time" in capsys.readouterr().err
    assert (tmp_path / "preferences.csv").read_text(encoding="utf-8") == "of yesterday"


def test_without_matplotlib_all_but_the_figure_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    answers = save(tmp_path / "answers.csv", [["item_1", "item_2"], ["item-1", "item-2"], ["item-3", "item-2"]])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["study", "learn", *shop.words, f"--answers={answers}", f"--out={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert "no figure: a figure needs matplotlib: pip install 'topk-bandit[experiments]'" in printed
    assert len(rows(tmp_path / "preferences.csv")) == 13
    assert not (tmp_path / "preferences.png").exists()
