"""Rankings as Nectar and TREC publish them, read as answers by the definition of each format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.client import AnswerKind, PastAnswer, Tiers
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.study.answer_files import AnswerFile
from topk_bandit.commands.study.files import Answered, Described, read_answers
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.tables.published import PUBLISHED

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.commands.imports.reading import Found

RUN = """\
q1 Q0 d2 1 0.5 bm25
q1 Q0 d1 2 7.5 bm25
q1 Q0 d3 3 0.5 bm25

q1 Q0 d9 1 -1e-3 dense
q2\tQ0\td3  9 2 dense
q2 Q0 d2 1 1 dense
"""
JUDGED = "q1 0 d1 3\nq1 0 d2 0\nq1 0 d3 3\nq2 0 d2 1\nq2 0 d1 1\n"


def read(
    path: Path, text: str, form: str, kind: AnswerKind = AnswerKind.RANKING, *, depth: int | None = None
) -> tuple[list[PastAnswer], Found]:
    path.write_text(text, encoding="utf-8")
    reading = AnswerFile(path, Named(), form, depth).reading(kind, size=12)
    found = reading.look_through(skips=False)
    return [reading.read(row) for row in reading.rows()], found


def test_a_run_is_an_order_by_score_of_each_query_and_system(tmp_path: Path) -> None:
    answers, found = read(tmp_path / "input.bm25", RUN, "trec-run")
    assert answers == [
        PastAnswer(Tiers([["d1"], ["d3", "d2"]]), ["d1", "d3", "d2"], "q1", "bm25"),
        PastAnswer(["d3", "d2"], query="q2", respondent="dense"),
    ]
    assert (found.count, found.silent, found.strangers) == (2, 1, ())
    # Of equal scores the later name comes first, as trec_eval has it.
    answers, _ = read(tmp_path / "input.bm25", RUN, "trec-run", depth=2)
    assert answers[0] == PastAnswer(["d1", "d3"], query="q1", respondent="bm25")


def test_judgements_are_an_order_with_ties_or_a_rating_each(tmp_path: Path) -> None:
    answers, found = read(tmp_path / "qrels.txt", JUDGED, "trec-qrels")
    assert answers == [PastAnswer(Tiers([["d3", "d1"], ["d2"]]), ["d3", "d1", "d2"], "q1")]
    assert found.silent == 1  # all documents of the other query are alike
    rated, _ = read(tmp_path / "qrels.txt", JUDGED, "trec-qrels", AnswerKind.RATINGS)
    assert [(one.query, one.answer) for one in rated] == [
        ("q1", {"d1": 3.0}),
        ("q1", {"d2": 0.0}),
        ("q1", {"d3": 3.0}),
        ("q2", {"d2": 1.0}),
        ("q2", {"d1": 1.0}),
    ]


def nectar(*models: tuple[str, float]) -> str:
    answers = [{"answer": "So", "model": model, "rank": rank} for model, rank in models]
    return json.dumps({"prompt": "Human: why?", "answers": answers, "turns": 1, "good_natured": True}) + "\n"


def test_the_items_of_nectar_are_the_models(tmp_path: Path) -> None:
    text = nectar(("llama", 3.0), ("gpt-4", 1.0), ("vicuna", 2.0)) + nectar(("gpt-4", 2.0), ("llama", 2.0))
    text += nectar(("gpt-4", 2.0), ("llama", 2.0), ("mpt", 5))
    answers, found = read(tmp_path / "nectar.jsonl", text, "nectar")
    assert answers == [
        PastAnswer(["gpt-4", "vicuna", "llama"]),
        PastAnswer(Tiers([["gpt-4", "llama"], ["mpt"]]), ["gpt-4", "llama", "mpt"]),
    ]
    assert (found.silent, found.strangers) == (1, ())
    assert read(tmp_path / "nectar.jsonl", text, "nectar", depth=2)[0] == [PastAnswer(["gpt-4", "vicuna"])]


def test_nectar_comes_as_parquet_too(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    answers = [{"answer": "So", "model": model, "rank": rank} for model, rank in (("a", 2.0), ("b", 1.0))]
    path = tmp_path / "nectar.parquet"
    parquet.write_table(arrow.table({"prompt": ["why?"], "answers": [answers]}), path)
    reading = AnswerFile(path, Named(), "nectar").reading(AnswerKind.RANKING, size=2)
    assert [reading.read(row) for row in reading.rows()] == [PastAnswer(["b", "a"])]


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("trec-run", "q1 Q0 d1 1 5\n", "x.jsonl, line 1, row: expected query Q0 document rank score tag; got 5 fields"),
        (
            "trec-run",
            RUN + "q1 Q0 d4 1 5 bm25\n",
            "x.jsonl, line 8, query: 'q1 of bm25' was there before: lines",
        ),
        ("trec-run", "q1 Q0 d1 1 high bm25\n", "x.jsonl, line 1, score: expected a finite number"),
        ("trec-run", "q1 Q0 d1 1 nan bm25\nq1 Q0 d2 1 1 bm25\n", "x.jsonl, line 1, score: "),
        (
            "trec-run",
            "q1 Q0 d1 1 2 a\nq1 Q0 d1 2 1 a\n",
            "x.jsonl, line 1, document: names the item 'd1' a second time",
        ),
        ("trec-run", "q1 Q0 d1 1 2 a\nq1 Q0 d2 2 1 a", "x.jsonl, line 2: the last line has no end"),
        ("trec-qrels", "q1 0 d1 1\nq1 0 d2\n", "x.jsonl, line 2, row: expected query iteration document relevance; "),
        ("trec-qrels", "", "x.jsonl: has no rows"),
        ("nectar", '{"prompt": "why?"}\n', "x.jsonl, line 1, column 'answers': expected a list of objects"),
        ("nectar", '{"answers": []}\n', "x.jsonl, line 1, column 'answers': expected a list of objects"),
        (
            "nectar",
            nectar(("a", 1.0)).replace("1.0", '"x"'),
            "x.jsonl, line 1, answers[0].rank: expected a finite number",
        ),
        ("nectar", '{"answers": [{"model": "a", "rank": 1}, {"rank": 2}]}\n', "answers[1].model: is missing"),
        ("nectar", nectar(("a", 1.0), ("a", 2.0)), "x.jsonl, line 1, answers, model: names the item 'a' a second time"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, form: str, text: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        read(tmp_path / "x.jsonl", text, form)
    assert said in str(refused.value)


@pytest.mark.parametrize("depth", [None, 1, 2])
def test_a_document_that_is_judged_twice_is_named_at_any_depth(tmp_path: Path, depth: int | None) -> None:
    with pytest.raises(InvalidArgumentError, match=r"qrels.txt, line 1, document: names the item 'd3' a second time"):
        read(tmp_path / "qrels.txt", "q1 0 d1 3\nq1 0 d3 2\nq1 0 d2 1\nq1 0 d3 0\n", "trec-qrels", depth=depth)


@pytest.mark.parametrize("form", ["nectar", "trec-run"])
def test_orders_are_no_ratings(tmp_path: Path, form: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"--format: a file of {form} has orders and no ratings"):
        read(tmp_path / "x.jsonl", RUN, form, AnswerKind.RATINGS)


def test_other_depths_and_formats_are_other_imports(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(RUN, encoding="utf-8")
    files = [AnswerFile(path, Named(), form, depth) for form in (None, *PUBLISHED) for depth in (None, 1, 2)]
    assert len({file.digest() for file in files}) == len(files)


def test_queries_and_documents_are_those_of_the_study(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(RUN, encoding="utf-8")
    items, queries = Described(("d1", "d2", "d3"), np.eye(3)), Described(("q1", "q2"), np.eye(2))
    file = AnswerFile(path, Named(), "trec-run")
    answers, _ = read_answers(file, kind=AnswerKind.RANKING, items=items, queries=queries)
    assert answers == [
        Answered(0, ((0,), (2, 1)), respondent="bm25"),
        Answered(1, ((2,), (1,)), respondent="dense"),
    ]
    with pytest.raises(InvalidArgumentError, match=r"run, line 1, column 'query': needs a file of queries: --queries"):
        read_answers(file, kind=AnswerKind.RANKING, items=items, queries=None)
