"""Reading people's own rankings."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.lab.experiments.rankings_file import load

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
item,list,position,x1,x2
b,q1,2,0.5,1
d,q2,1,-1e1,2
a,q1,1,1.5,0
c,q1,10,3,-4
e,q2,0.5,0,7
"""


def written(folder: Path, text: str, name: str = "rankings.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_in_any_order_become_lists_best_first(tmp_path: Path) -> None:
    data = load(written(tmp_path, GOOD))
    assert data.lists == ("q1", "q2")
    assert data.items == ("a", "b", "c", "e", "d")
    assert data.feature_names == ("x1", "x2")
    assert data.features.tolist() == [[1.5, 0.0], [0.5, 1.0], [3.0, -4.0], [0.0, 7.0], [-10.0, 2.0]]
    assert data.positions.tolist() == [1.0, 2.0, 10.0, 0.5, 1.0]
    assert [rows.tolist() for rows in data.rows] == [[0, 1, 2], [3, 4]]
    orderings = data.orderings()
    assert orderings.items.tolist() == [0, 1, 2, 3, 4]
    assert orderings.starts.tolist() == [0, 3, 5]
    assert orderings.places.tolist() == [2, 1]


def test_a_list_with_ties_is_its_pairs_that_are_not_tied(tmp_path: Path) -> None:
    data = load(written(tmp_path, "list,item,position,x\nq,a,1,0\nq,b,2,1\nq,c,2,2\nr,a,1,3\nr,b,2,4\n"))
    orderings = data.orderings()
    assert orderings.items.tolist() == [3, 4, 0, 1, 0, 2]
    assert orderings.places.tolist() == [1, 1, 1]


def test_parquet_reads_as_csv_does_with_ids_of_any_type(tmp_path: Path) -> None:
    table = pa.table(
        {
            "list": [7, 7, 8, 8],
            "item": ["a", "b", "a", "b"],
            "position": [2, 1, 1, 2],
            "x": pa.array([0.5, 1.5, 2.5, 3.5], pa.float32()),
        }
    )
    parquet.write_table(table, tmp_path / "rankings.parquet")
    one = load(tmp_path / "rankings.parquet")
    other = load(written(tmp_path, "list,item,position,x\n7,a,2,0.5\n7,b,1,1.5\n8,a,1,2.5\n8,b,2,3.5\n"))
    assert (one.lists, one.items, one.feature_names) == (other.lists, other.items, other.feature_names)
    assert one.features.tolist() == other.features.tolist() == [[1.5], [0.5], [2.5], [3.5]]
    np.testing.assert_array_equal(one.of_one_length(), [[0, 1], [2, 3]])


def test_a_byte_order_mark_and_empty_lines_do_not_matter(tmp_path: Path) -> None:
    plain = load(written(tmp_path, GOOD))
    marked = load(written(tmp_path, "\ufeff" + GOOD.replace("\n", "\r\n") + "\r\n", "marked.csv"))
    assert marked.items == plain.items
    assert marked.features.tolist() == plain.features.tolist()


@pytest.mark.parametrize(
    ("changed", "to", "problem"),
    [
        ("q1,2,0.5,1", "q1,2,0.5,nan", "line 2, column 'x2': is missing"),
        ("q2,1,-1e1,2", "q2,1,1e999,2", "line 3, column 'x1': expected a finite number, got '1e999'"),
        ("q1,1,1.5,0", "q1,1,1.5,", "line 4, column 'x2': is missing"),
        ("q1,10,3", "q1,first,3", "line 5, column 'position': expected a finite number, got 'first'"),
        ("q1,10,3", "q1,1_0,3", "line 5, column 'position': expected a finite number, got '1_0'"),
        ("c,q1", "b,q1", "line 5, column 'item': 'b' comes twice in list 'q1'"),
        ("c,q1", "b ,q1", "line 5, column 'item': 'b' comes twice in list 'q1'"),
        ("c,q1", "\n\nb,q1", "line 7, column 'item': 'b' comes twice in list 'q1'"),
        ("e,q2", "e,q3", "line 3: list 'q2' has only one item"),
        ("e,q2", ",q2", "line 6, column 'item': is missing"),
        ("d,q2", "d,", "line 3, column 'list': is missing"),
        ("q1,10,3,-4", "q1,10,3", "line 5, row: expected 5 cells, as the header has, got 4"),
        ("e,q2,0.5,0,7\n", "e,q2,0.5,0,7", "line 6: the last line has no end"),
        ("item,list", "item,query", "line 1: there is no column 'list'; the columns are item, query, position, x1, x2"),
        ("x1,x2", "x1,x1", "line 1: column 'x1' comes twice"),
        (GOOD, "list,item,position\nq,a,1\nq,b,2\n", "line 1: there is no feature column"),
        (GOOD, "index,list,item,position,x\n0,q,a,1,0\n1,q,b,2,3\n", "column 'index': only numbers the rows"),
        (GOOD, ",list,item,position,x\n5,q,a,1,0\n9,q,b,2,3\n", "line 2, column 1: '5' is no row's number"),
        (GOOD, "list,item,position,x\n", "has no rows"),
        (GOOD, "", "has no header row"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_column(tmp_path: Path, changed: str, to: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        load(written(tmp_path, GOOD.replace(changed, to)))
    assert raised.value.field == "--data"
    assert raised.value.problem.replace(", ", ": ", 1).startswith(f"rankings.csv: {problem}")


def test_in_parquet_the_first_row_is_row_one(tmp_path: Path) -> None:
    table = pa.table({"list": ["q", "q"], "item": ["a", "b"], "position": [1, 2], "x": [1.0, None]})
    parquet.write_table(table, tmp_path / "rankings.parquet")
    with pytest.raises(InvalidArgumentError, match=r"rankings\.parquet, row 2, column 'x': is missing"):
        load(tmp_path / "rankings.parquet")


def test_the_rows_numbers_without_a_name_are_no_feature(tmp_path: Path) -> None:
    plain = load(written(tmp_path, GOOD))
    head, *lines = GOOD.splitlines()
    numbered = [f",{head}", *(f"{number},{line}" for number, line in enumerate(lines))]
    found = load(written(tmp_path, "\n".join(numbered) + "\n", "pandas.csv"))
    assert (found.feature_names, found.features.tolist()) == (plain.feature_names, plain.features.tolist())


def test_json_lines_and_other_separators_are_read_too(tmp_path: Path) -> None:
    plain = load(written(tmp_path, GOOD))
    assert load(written(tmp_path, GOOD.replace(",", "\t"), "rankings.tsv")).items == plain.items
    assert load(written(tmp_path, GOOD.replace(",", ";"), "RANKINGS.CSV")).items == plain.items
    head, *lines = GOOD.splitlines()
    rows = [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]
    found = load(written(tmp_path, "\n".join(map(json.dumps, rows)), "rankings.jsonl"))
    assert found.features.tolist() == plain.features.tolist()


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array([0, 1], pa.timestamp("ns")), "row 1, column 'x': expected a finite number"),
        (pa.array([0, 1], pa.duration("ns")), "row 1, column 'x': expected a finite number"),
        (pa.array([2**52, 0], pa.timestamp("ms")), "row 1, column 'x': expected a finite number"),
        (pa.array([True, False]), "row 1, column 'x': expected a finite number"),
        (pa.array(["2_0", "1"]), "row 1, column 'x': expected a finite number"),
    ],
)
def test_what_is_no_number_in_parquet_is_named(tmp_path: Path, column: pa.Array, problem: str) -> None:
    table = pa.table({"list": ["q", "q"], "item": ["a", "b"], "position": [1, 2], "x": column})
    parquet.write_table(table, tmp_path / "rankings.parquet")
    with pytest.raises(InvalidArgumentError, match=problem):
        load(tmp_path / "rankings.parquet")


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"--data: expected one that ends in \.jsonl, .*; got 'r\.txt'"):
        load(tmp_path / "r.txt")
    with pytest.raises(ConfigurationError, match=r"away\.csv can't be read: No such file"):
        load(tmp_path / "away.csv")
    with pytest.raises(ConfigurationError, match=r"away\.parquet can't be read"):
        load(tmp_path / "away.parquet")
    with pytest.raises(InvalidArgumentError, match=r"no\.parquet: is no whole Parquet file"):
        load(written(tmp_path, GOOD, "no.parquet"))
    (tmp_path / "latin.csv").write_bytes(b"list,item,position,x\nq,\xe9,1,0\n")
    with pytest.raises(InvalidArgumentError, match=r"latin\.csv, line 2: is no text in UTF-8"):
        load(tmp_path / "latin.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ConfigurationError, match=r"pipe\.csv is a pipe or a device"):
        load(tmp_path / "pipe.csv")


def test_lists_of_different_lengths_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="list 'q2' has 2 items and list 'q1' has 3"):
        load(written(tmp_path, GOOD)).of_one_length()
