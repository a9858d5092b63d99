"""Files that programs write, whole, permuted, with strangers among their columns and cut: one result, or a refusal."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.corpus.files import ANSWER_FILES, ANSWERS, FILES, REFUSED, ROWS

from topk_bandit.client import AnswerKind
from topk_bandit.commands.imports.answers import AnswerColumns
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.imports.columns import Columns
from topk_bandit.commands.imports.reading import Reading
from topk_bandit.domain.errors import InvalidArgumentError, TopkBanditError
from topk_bandit.domain.features import Categorical, Feature
from topk_bandit.tables.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = (Feature("country", Categorical(buckets=4)), Feature("size", Categorical(buckets=4)))
STRANGERS = ("comment", "user id", "цвет", "x_1", "Unnamed: 7")


def read_slates(path: Path) -> list[Any]:
    columns = Columns.of(Named(), schema=SCHEMA, slate_size=2, context_dimension=1)
    return read_all(Reading(path.name, lambda: read_rows(path), columns))


def read_answers(path: Path) -> list[Any]:
    columns = AnswerColumns.of(Named(), AnswerKind.RANKING, size=12)
    return read_all(Reading(path.name, lambda: read_rows(path, orders=True), columns))


def read_all(reading: Reading[Any]) -> list[Any]:
    found = reading.look_through(skips=False)
    rows = [reading.read(row) for row in reading.open_rows()]
    assert found.count == len(rows)
    return rows


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


CASES: list[tuple[Callable[[Path], list[Any]], list[Any], str, str]] = [
    *((read_slates, ROWS, name, text) for name, text in FILES.items()),
    *((read_answers, ANSWERS, name, text) for name, text in ANSWER_FILES.items()),
]
NAMES = [f"{'answers ' if rows is ANSWERS else ''}{name}" for _, rows, name, _ in CASES]


@pytest.mark.parametrize(("read", "rows", "name", "text"), CASES, ids=NAMES)
def test_each_form_says_the_same(
    tmp_path: Path, read: Callable[[Path], list[Any]], rows: list[Any], name: str, text: str
) -> None:
    assert read(written(tmp_path, name, text)) == rows


@pytest.mark.parametrize(("read", "rows", "name", "text"), CASES, ids=NAMES)
def test_permuted_columns_and_strangers_change_nothing(
    tmp_path: Path, read: Callable[[Path], list[Any]], rows: list[Any], name: str, text: str
) -> None:
    if name.endswith(".soi"):
        pytest.skip("has no columns")
    chance = random.Random(name)
    for stranger in STRANGERS:
        assert read(written(tmp_path, name, permuted(name, text, stranger, chance))) == rows, stranger


def permuted(name: str, text: str, stranger: str, chance: random.Random) -> str:
    """Return a file with its columns in another order, and one more among them."""
    if name.endswith(".jsonl"):
        objects = [json.loads(line) | {stranger: chance.choice(["tea", 1, None])} for line in text.split("\n") if line]
        shuffled = [dict(chance.sample(list(one.items()), len(one))) for one in objects]
        return "".join(f"{json.dumps(one)}\n" for one in shuffled)
    header = text.strip().splitlines()[0]
    delimiter = next((one for one in ",;\t" if one in header), ",")
    rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff")), delimiter=delimiter, skipinitialspace=True))
    rows = [row for row in rows if any(row)]
    first = rows[0]
    # A first column without a name has the rows' numbers, and is first wherever it is written.
    order = chance.sample([place for place in range(len(first)) if first[place]], sum(map(bool, first)))
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    for number, row in enumerate(rows):
        more = stranger if number == 0 else chance.choice(["tea", "5", ""])
        cells = [row[place] for place in order]
        writer.writerow([*cells[: len(cells) // 2], more, *cells[len(cells) // 2 :]])
    return out.getvalue()


@pytest.mark.parametrize(("read", "rows", "name", "text"), CASES, ids=NAMES)
def test_a_file_that_is_cut_anywhere_has_its_first_rows_or_is_refused(
    tmp_path: Path, read: Callable[[Path], list[Any]], rows: list[Any], name: str, text: str
) -> None:
    whole = text.encode()
    for end in range(len(whole)):
        try:
            found = read(written(tmp_path, name, whole[:end]))
        except TopkBanditError:
            continue
        # A cut between two rows can't be seen; what is before it is as it was.
        assert found == rows[: len(found)], end
        assert found == rows or whole[:end].endswith((b"\n", b"\r")) or name.endswith(".jsonl"), end


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_clear_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    text, problem = REFUSED[name]
    read = read_answers if Path(name).suffix in {".soc", ".soi", ".toc"} else read_slates
    with pytest.raises(InvalidArgumentError) as caught:
        read(written(tmp_path, name, text))
    assert problem in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "item_1;item_2;reward\na;b;1.234\na;b;.5\n",
        "item_1;item_2;reward;version\na;b;1.234\\;1.234.567\na;b;0.5;2\n".replace("\\", ""),
        "item_1,item_2,reward\na,b,1.234\na,b,0.5\n",
        'item_1,item_2,reward,total\na,b,1.234,"1,500"\na,b,0.5,"2"\n',
        "item_1\titem_2\treward\na\tb\t1.234\na\tb\t0.5\n",
        "item_1;item_2;reward;note\na;b;1.234;in 3,5 h\na;b;0.5;\n",
    ],
)
def test_a_point_that_certainly_stands_before_decimals_does(tmp_path: Path, text: str) -> None:
    name = "rows.tsv" if "\t" in text else "rows.csv"
    assert [row.reward for row in read_slates(written(tmp_path, name, text))] == [1.234, 0.5]


def test_points_between_thousands_are_texts_as_they_are(tmp_path: Path) -> None:
    [row] = read_slates(written(tmp_path, "rows.csv", "item_1;item_2;reward;country\n1.234;2.500;7;3.100\n"))
    assert (row.items, row.features) == (("1.234", "2.500"), {"country": "3.100"})


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    text = f'item_1,item_2,reward,comment\ntea,milk,1,"{"x" * 200_000}"\n'
    [row] = read_slates(written(tmp_path, "rows.csv", text))
    assert row.items == ("tea", "milk")


def test_a_file_of_tabs_has_them_whatever_its_header_has(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.tsv", "item_1\titem_2\treward\tprice, EUR\ntea\tmilk\t1\t2,50\n")
    [row] = read_slates(path)
    assert (row.items, row.reward) == (("tea", "milk"), 1.0)


def test_a_parquet_file_that_is_cut_or_has_a_column_twice_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    columns = {"item_1": ["tea", "milk"], "item_2": ["milk", "tea"], "reward": [1.0, 2.0], "country": ["DE", None]}
    parquet.write_table(arrow.table(columns), path)
    whole, rows = path.read_bytes(), read_slates(path)
    assert [row.features for row in rows] == [{"country": "DE"}, {}]
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(InvalidArgumentError, match=r"rows\.parquet"):
            read_slates(path)
    for index, fits in ([0, 1], True), ([1, 2], True), ([3, 7], False), ([None, None], True), (["a", "b"], False):
        parquet.write_table(arrow.table(columns | {"__index_level_0__": index}), path)
        if fits:
            assert read_slates(path) == rows
            continue
        with pytest.raises(InvalidArgumentError, match=rf"row 1, column '__index_level_0__': {index[0]!r} is no"):
            read_slates(path)
    twice = arrow.Table.from_arrays([arrow.array(["tea"]), arrow.array(["milk"])], names=["item_1", "item_1"])
    parquet.write_table(twice, path)
    with pytest.raises(InvalidArgumentError, match="column 'item_1' comes twice"):
        read_slates(path)


@pytest.mark.parametrize(("bits", "exact", "rounded"), [(32, 2.0**24 - 1, 2.0**24), (16, 2.0**11 - 1, 2.0**11)])
def test_short_floats_of_parquet_have_their_own_digits(tmp_path: Path, bits: int, exact: float, rounded: float) -> None:
    """Where they may have lost some they say no text and no time."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, kind = tmp_path / "rows.parquet", arrow.float32() if bits == 32 else arrow.float16()
    columns = {"items": [["tea", "milk"]], "reward": [1.0]}

    def read(**changed: object) -> list[Any]:
        parquet.write_table(arrow.table(columns | changed), path)
        return read_slates(path)

    def short(value: float) -> object:
        return arrow.array([value]).cast(kind, safe=False)

    def several(*values: float) -> object:
        return arrow.array([values]).cast(arrow.list_(kind), safe=False)

    assert read(reward=short(0.1))[0].reward == 0.1
    assert read(reward=short(rounded))[0].reward == pytest.approx(rounded, rel=1e-3)
    assert read(items=several(exact, 1.0))[0].items == (str(int(exact)), "1")
    assert read(more=several(rounded, 1.0))[0].items == ("tea", "milk")
    nested = arrow.array([{"country": rounded}]).cast(arrow.struct({"country": kind}), safe=False)
    for where in ({"items": several(rounded, 1.0)}, {"features": nested}):
        with pytest.raises(InvalidArgumentError, match="a number so large has lost digits"):
            read(**where)
    if bits == 32:
        with pytest.raises(InvalidArgumentError, match="column 'time': expected a time"):
            read(time=short(1_769_860_800.0))


def test_a_column_of_parquet_without_a_name_only_counts_rows(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, columns = tmp_path / "rows.parquet", {"item_1": ["tea", "a"], "item_2": ["milk", "b"], "reward": [1.0, 2.0]}
    parquet.write_table(arrow.table(columns | {"": [0, 1]}), path)
    assert len(read_slates(path)) == 2
    parquet.write_table(arrow.table(columns | {"": ["2026-01-31", "2026-02-01"]}), path)
    with pytest.raises(InvalidArgumentError, match="row 1, column '': '2026-01-31' is no row's number"):
        read_slates(path)
