from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.long_forms import examples

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.lab.experiments.ratings_file import load

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.lab.experiments.ratings_file import RatingsTable

Rating: TypeAlias = tuple[int, int, float]

RATINGS: list[Rating] = [(7, 30, 4.0), (7, 10, 0.5), (2, 30, 5.0), (900, 4, 3.0), (2, 4, 1.0)]
FILES = ("u.data", "ratings.dat", "ratings.csv")


def text(name: str, ratings: list[Rating], *, end: str = "\n") -> str:
    separator = {"u.data": "\t", "ratings.dat": "::", "ratings.csv": ","}[name]
    lines = [separator.join([str(user), str(item), f"{value:g}", "881250949"]) for user, item, value in ratings]
    if name == "ratings.csv":
        lines.insert(0, "userId,movieId,rating,timestamp")
    return "".join(line + end for line in lines)


def rows(found: RatingsTable) -> list[Rating]:
    return list(
        zip(
            found.users[found.user_of].tolist(), found.items[found.item_of].tolist(), found.values.tolist(), strict=True
        )
    )


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, newline="")
    return path


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_formats_say_the_same(tmp_path: Path, name: str, end: str) -> None:
    path = written(tmp_path, name, text(name, RATINGS, end=end))
    found = load(path)
    assert rows(found) == RATINGS
    assert found.users.tolist() == [2, 7, 900]
    assert found.items.tolist() == [4, 10, 30]
    assert rows(load(tmp_path)) == RATINGS
    renamed = path.rename(tmp_path / f"mine{path.suffix}")
    assert rows(load(renamed)) == RATINGS


@pytest.mark.parametrize("name", FILES)
def test_an_archive_is_read_as_it_came(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ml.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("ml/README", "read me")
        archive.writestr(f"ml/{name}", text(name, RATINGS))
        archive.writestr("ml/u1.base", "not this one")
    assert rows(load(path)) == RATINGS


PAIRS = st.dictionaries(
    st.tuples(st.integers(0, 2**53 - 1), st.integers(0, 40)),
    st.integers(1, 10).map(lambda halves: halves / 2),
    min_size=1,
)


@given(ratings=PAIRS.map(lambda pairs: [(*pair, value) for pair, value in pairs.items()]), name=st.sampled_from(FILES))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_is_read(tmp_path: Path, ratings: list[Rating], name: str) -> None:
    assert rows(load(written(tmp_path, name, text(name, ratings)))) == ratings


def test_the_columns_of_a_csv_are_named_by_its_head(tmp_path: Path) -> None:
    path = written(tmp_path, "ratings.csv", "\ufefftime,rating, movieId ,userId\nx,4.5,10,7\n\ny,3,11,7\n")
    assert rows(load(path)) == [(7, 10, 4.5), (7, 11, 3.0)]


@pytest.mark.parametrize("header", [("userId", "movieId", "rating", "time"), ("user", "item", "rating", "t")])
@pytest.mark.parametrize(("name", "separator"), [("u.data", "\t"), ("ratings.dat", "::"), ("ratings.csv", ",")])
def test_a_header_is_no_rating(tmp_path: Path, header: tuple[str, ...], name: str, separator: str) -> None:
    body = text(name, RATINGS).removeprefix("userId,movieId,rating,timestamp\n")
    assert rows(load(written(tmp_path, name, f"{separator.join(header)}\n{body}"))) == RATINGS


def test_a_header_with_other_names_is_refused(tmp_path: Path) -> None:
    for name, header in (("u.data", "item\tuser\tstars"), ("ratings.dat", "who::what::how much")):
        separator = "\t" if name == "u.data" else "::"
        with pytest.raises(InvalidArgumentError, match=r"line 1: there is no column userId; the columns are"):
            load(written(tmp_path, name, f"{header}\n{separator.join('123')}\n"))


def test_names_may_have_quotes_or_types(tmp_path: Path) -> None:
    found = load(written(tmp_path, "u.data", "item_id:token\tuser_id:token\trating:float\n10\t7\t4\n"))
    assert rows(found) == [(7, 10, 4.0)]
    assert rows(load(written(tmp_path, "ratings.csv", '"userId","movieId","rating"\n7,10,4\n'))) == [(7, 10, 4.0)]


def test_columns_may_be_in_any_order_under_their_names(tmp_path: Path) -> None:
    assert rows(load(written(tmp_path, "u.data", "rating\titem_id\tuser_id\n4\t10\t7\n"))) == [(7, 10, 4.0)]


NOT_NUMBERS = "expected three numbers separated by"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("ratings.csv", "userId,movieId,rating\n1,2,4,5\n", "line 2: expected 3 cells, as line 1 has, and not 4"),
        ("u.data", "1\t2\t3\t0\n1\t3\t2\n", "line 2: expected 4 cells, as line 1 has, and not 3"),
        ("u.data", "1\t2\t3\n1\t3\t4.5", "the last line has no end, so that the file may be cut"),
        ("ratings.csv", "userId,movieId,rating,rating\n1,2,3,4\n", "line 1: rating is there besides: keep one"),
        ("ratings.csv", "userId,movieId,rating,user,item\n1,2,3,4,5\n", "line 1: user,item,rating is there besides"),
        ("u.data", "1\t2\t3\t0\n1\t3\n", f"u.data, line 2: {NOT_NUMBERS} tabs, got '1\\t3'"),
        ("u.data", "1\t2\t3\t0\n\n1\tx\t3\t0\n", f"u.data, line 3: {NOT_NUMBERS} tabs, got '1\\tx\\t3\\t0'"),
        ("u.data", "1,2,3,0\n", f"u.data, line 1: {NOT_NUMBERS} tabs, got '1,2,3,0'"),
        ("u.data", "1\t2\t1_0\t0\n", f"u.data, line 1: {NOT_NUMBERS} tabs"),
        ("ratings.dat", "1::2::3::0\n1:2:3:0\n", f"line 2: {NOT_NUMBERS} two colons, got '1:2:3:0'"),
        ("ratings.csv", "userId,movieId,rating\n1,2,3\n1,,3\n", f"line 3: {NOT_NUMBERS} commas, got '1,,3'"),
        ("ratings.csv", "1,2,3,4\n", "line 1: there is no column userId; the columns are 1, 2, 3, 4"),
        ("ratings.csv", "userId,item,rating\n1,2,3\n", "line 1: there is no column movieId"),
        ("ratings.csv", "userId,movieId,rating\n", "there are no ratings"),
        ("u.data", "", "there are no ratings"),
        ("u.data", "1\t2\t3\t0\n1\t3\t0\t0\n", "line 2: expected a rating above zero"),
        ("u.data", "1\t2\tnan\t0\n", "line 1: expected a rating above zero"),
        ("u.data", "1\t2\tinf\t0\n", "line 1: expected a rating above zero"),
        ("u.data", "1\t2\t1e999\t0\n", "line 1: expected a rating above zero"),
        ("ratings.csv", "userId,movieId,rating\n\n1,2.5,3\n", "line 3: expected ids that are whole numbers"),
        ("u.data", "-1\t2\t3\t0\n", "line 1: expected ids that are whole numbers"),
        ("u.data", "1\tnan\t3\t0\n", "line 1: expected ids that are whole numbers"),
        ("u.data", f"{2**53}\t1\t3\t0\n", "line 1: expected ids that are whole numbers"),
        ("u.data", "1\t2\t3\t0\n2\t2\t3\t0\n\n1\t2\t4\t0\n", "line 4: this user has rated this item before"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_reported_by_its_number(tmp_path: Path, name: str, content: str, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(InvalidArgumentError) as caught:
        load(path)
    assert caught.value.field == "--ratings"
    assert problem in caught.value.problem
    with ZipFile(tmp_path / "ml.zip", "w") as archive:
        archive.writestr(f"ml/{name}", path.read_bytes())
    with pytest.raises(InvalidArgumentError) as zipped:
        load(tmp_path / "ml.zip")
    assert zipped.value.problem == caught.value.problem.replace(name, f"ml.zip, ml/{name}", 1)


def test_a_folder_or_an_archive_holds_one_file_of_ratings(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"u\.data, ratings\.dat or ratings\.csv, found none"):
        load(tmp_path)
    for name in FILES[:2]:
        written(tmp_path, name, text(name, RATINGS))
    with pytest.raises(InvalidArgumentError, match=r"found (u\.data, ratings\.dat|ratings\.dat, u\.data)"):
        load(tmp_path)
    with ZipFile(tmp_path / "ml.zip", "w") as archive:
        archive.writestr("ml/README", "read me")
    with pytest.raises(InvalidArgumentError, match="found none"):
        load(tmp_path / "ml.zip")


def test_what_can_not_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"u\.data can't be read: No such file"):
        load(tmp_path / "u.data")
    with pytest.raises(ConfigurationError, match=r"nowhere can't be read: No such file"):
        load(tmp_path / "nowhere")
    with pytest.raises(InvalidArgumentError, match=r"ml\.zip is no archive that can be read"):
        load(written(tmp_path, "ml.zip", "no"))
    (tmp_path / "u.data").write_bytes("1\t2\t3\n".encode("utf-16"))
    with pytest.raises(InvalidArgumentError, match=r"u\.data is no text in UTF-8"):
        load(tmp_path / "u.data")
    with ZipFile(tmp_path / "ml.zip", "w", compression=ZIP_DEFLATED) as archive:
        archive.writestr("u.data", text("u.data", RATINGS * 100))
    content = bytearray((tmp_path / "ml.zip").read_bytes())
    content[45:60] = b"?" * 15
    (tmp_path / "ml.zip").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"ml\.zip is no archive that can be read"):
        load(tmp_path / "ml.zip")
    with pytest.raises(InvalidArgumentError, match=r"ending in \.data, \.dat, \.csv, \.zip, got 'u\.txt'"):
        load(written(tmp_path, "u.txt", text("u.data", RATINGS)))
