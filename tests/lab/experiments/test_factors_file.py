from __future__ import annotations

import hashlib
import io
import re
from typing import TYPE_CHECKING
from zipfile import ZipFile

import numpy as np
import pytest

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.lab.experiments.factors_file import factors_of, load

if TYPE_CHECKING:
    from pathlib import Path

USERS = np.random.default_rng(0).normal(size=(6, 3))
ITEMS = np.random.default_rng(1).normal(size=(50, 3))


def saved(folder: Path, **arrays: object) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def as_csv(folder: Path, users: str, items: str) -> Path:
    path = folder / "factors"
    path.mkdir()
    (path / "users.csv").write_text(users)
    (path / "items.csv").write_text(items)
    return path


def lines(table: np.ndarray) -> str:
    return "".join(",".join(map(repr, row)) + "\n" for row in table.tolist())


@pytest.mark.parametrize("names", [("U", "V"), ("users", "items")])
def test_an_npz_holds_both(tmp_path: Path, names: tuple[str, str]) -> None:
    found = load(saved(tmp_path, **{names[0]: USERS, names[1]: ITEMS.astype(np.float32), "others": np.array("x")}))
    assert found.users.tolist() == USERS.tolist()
    assert found.items.tolist() == ITEMS.astype(np.float32).tolist()
    assert found.items.dtype == np.float64


def test_whole_numbers_are_numbers(tmp_path: Path) -> None:
    assert load(saved(tmp_path, U=np.ones((5, 2), dtype=np.int8), V=np.ones((50, 2)))).users.dtype == np.float64


def test_a_folder_holds_a_file_of_each(tmp_path: Path) -> None:
    found = load(as_csv(tmp_path, "\ufeff" + lines(USERS), lines(ITEMS)))
    assert found.users.tolist() == USERS.tolist()
    assert found.items.tolist() == ITEMS.tolist()


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"U": USERS}, "expected arrays U and V, or users and items; it has U"),
        ({"users": USERS, "V": ITEMS}, "expected arrays U and V, or users and items; it has V, users"),
        ({"U": USERS[0], "V": ITEMS}, r"U has shape \(3,\), expected a table"),
        ({"U": USERS, "V": ITEMS[None]}, r"V has shape \(1, 50, 3\), expected a table"),
        ({"U": USERS[:, :0], "V": ITEMS}, r"U has shape \(6, 0\), expected a table"),
        ({"U": USERS[:, :2], "V": ITEMS}, r"U has shape \(6, 2\) and V \(50, 3\): expected as many columns"),
        ({"U": USERS, "V": np.where(ITEMS[7, 1] == ITEMS, np.nan, ITEMS)}, "V: row 8, column 2 is nan"),
        ({"U": np.where(USERS[2, 0] == USERS, np.inf, USERS), "V": ITEMS}, "U: row 3, column 1 is inf"),
        ({"U": USERS.astype(str), "V": ITEMS}, "U holds <U32, expected numbers"),
        ({"U": USERS.astype(complex), "V": ITEMS}, "U holds complex128, expected numbers"),
        ({"U": USERS > 0, "V": ITEMS}, "U holds bool, expected numbers"),
        ({"U": USERS[:4], "V": ITEMS}, "there are 4 users, the experiments need at least 5"),
        ({"U": USERS, "V": ITEMS[1:]}, "there are 49 items, the experiments need at least 50"),
        ({"U": USERS.astype(object), "V": ITEMS}, "array U can't be read: Object arrays cannot be loaded"),
    ],
)
def test_what_an_npz_lacks_is_reported_by_array(tmp_path: Path, arrays: dict[str, np.ndarray], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        load(saved(tmp_path, **arrays))
    assert caught.value.field == "--factors"


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[object, ...]:
            return ((tmp_path / "ran").write_text, ("it ran",))

    path = saved(tmp_path, U=np.array([Runs()], dtype=object), V=ITEMS)
    with pytest.raises(InvalidArgumentError, match="array U can't be read"):
        load(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("users", "items", "problem"),
    [
        ("1,2\n3,x\n", lines(ITEMS), "users.csv, line 2: expected a finite number, got 'x'"),
        ("a,b\n1,2\n", lines(ITEMS), "users.csv, line 1: expected a finite number, got 'a'"),
        ("1,2\n1_0,2\n", lines(ITEMS), "users.csv, line 2: expected a finite number, got '1_0'"),
        ("1,2\n1e-400,2\n", lines(ITEMS), "users.csv, line 2: expected a finite number, got '1e-400'"),
        ("1,2\n\n1,\n", lines(ITEMS), "users.csv, line 3: number 2 is missing"),
        ("1,2\n1,2.5", lines(ITEMS), "users.csv, line 2: the last line has no end"),
        (lines(USERS) + "1e101,1,2\n", lines(ITEMS), r"users.csv: row 7, column 1 is 1e\+101, expected numbers up to"),
        (lines(USERS), "1,2,3\n1,2\n", "items.csv, line 2: expected 3 numbers, as in line 1, got 2"),
        (lines(USERS), lines(ITEMS[:, :2]), r"users.csv has shape \(6, 3\) and items.csv \(50, 2\)"),
        ("", lines(ITEMS), r"users.csv has shape \(0,\), expected a table"),
        (lines(USERS) + "nan,1,2\n", lines(ITEMS), "users.csv, line 7: number 1 is missing"),
    ],
)
def test_what_a_folder_lacks_is_reported_by_line(tmp_path: Path, users: str, items: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        load(as_csv(tmp_path, users, items))
    assert caught.value.field == "--factors"


def test_what_is_no_npz_is_refused(tmp_path: Path) -> None:
    for name, content in (("text.npz", b"U,V\n"), ("empty.npz", b""), ("table.csv", b"1,2\n")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InvalidArgumentError, match=name):
            load(path)
    whole = saved(tmp_path, U=USERS, V=ITEMS).read_bytes()
    spoilt = tmp_path / "spoilt.npz"
    spoilt.write_bytes(whole[:200] + b"!" + whole[201:])
    with pytest.raises(InvalidArgumentError, match=r"spoilt\.npz: array U can't be read: Bad CRC"):
        load(spoilt)


def test_a_damaged_array_is_refused_before_anything_is_made_of_it(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.save(whole, USERS)
    header, rest = whole.getvalue()[:128], whole.getvalue()[128:]
    claims = header.replace(b"(6, 3)", b"(10000000000000, 3)").replace(b" " * 13, b"", 1)
    for content, problem in (
        (claims[:10] + claims[10:].ljust(118) + rest, "it is cut: shape (10000000000000, 3) is more than there is"),
        (header.replace(b"(6, 3)", b"((((((")[:128] + rest, "array U can't be read"),
        (whole.getvalue()[:90], "array U can't be read"),
        (whole.getvalue()[:200], "array U can't be read"),
        (b"", "array U can't be read"),
    ):
        with ZipFile(tmp_path / "bad.npz", "w") as archive:
            archive.writestr("U.npy", content)
            archive.writestr("V.npy", whole.getvalue())
        with pytest.raises(InvalidArgumentError, match=re.escape(problem)):
            load(tmp_path / "bad.npz")


@pytest.mark.parametrize(("at", "number"), [(6, 1), (8, 1), (8, 9)])
def test_an_archive_with_a_password_or_of_another_kind_is_refused(tmp_path: Path, at: int, number: int) -> None:
    """A bit of its entries says that a member has a password, and a number how it is packed: 9 is Windows's."""
    path = saved(tmp_path, U=USERS, V=ITEMS)
    content = bytearray(path.read_bytes())
    for start, offset in ((b"PK\x03\x04", at), (b"PK\x01\x02", at + 2)):
        for found in re.finditer(re.escape(start), bytes(content)):
            content[found.start() + offset] = number
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"mine\.npz: array U can't be read"):
        load(path)


def test_what_is_not_there_is_reported_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.npz can't be read: No such file"):
        load(tmp_path / "absent.npz")
    folder = as_csv(tmp_path, lines(USERS), lines(ITEMS))
    (folder / "items.csv").unlink()
    with pytest.raises(ConfigurationError, match=r"items\.csv can't be read: No such file"):
        load(folder)


def test_a_file_of_factors_is_identified_by_its_digest(tmp_path: Path) -> None:
    path = saved(tmp_path, U=USERS, V=ITEMS)
    found, settings = factors_of(path, None, 0)
    assert found.items.tolist() == ITEMS.tolist()
    assert settings == {
        "factors": "mine.npz",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "factor_shapes": [[6, 3], [50, 3]],
    }
    folder = as_csv(tmp_path, lines(USERS), lines(ITEMS))
    digest = hashlib.sha256((lines(USERS) + lines(ITEMS)).encode()).hexdigest()
    assert factors_of(folder, None, 0)[1]["sha256"] == digest


def test_without_a_file_factors_are_drawn() -> None:
    (one, settings), (same, _), (other, _) = (factors_of(None, None, seed) for seed in (1, 1, 2))
    assert settings == {"factors": "synthetic", "factor_shapes": [[943, 5], [1682, 5]]}
    assert one.users.tolist() == same.users.tolist()
    assert one.users.tolist() != other.users.tolist()


def test_factors_of_ratings_are_found(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(3), tmp_path / "u.data"
    pairs = rng.choice(20 * 60, size=700, replace=False)
    path.write_text(
        "".join(
            f"{pair // 60}\t{pair % 60}\t{rating}\t0\n"
            for pair, rating in zip(pairs, rng.integers(1, 6, 700), strict=True)
        )
    )
    found, settings = factors_of(None, path, 0)
    assert (found.users.shape, found.items.shape) == ((20, 5), (60, 5))
    assert settings["factors"] == "of 700 ratings in u.data"
    assert settings["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert settings["sweeps"] == 15
    assert factors_of(None, tmp_path, 0)[1]["sha256"] == settings["sha256"]


def test_ratings_of_too_few_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "u.data"
    path.write_text("".join(f"{user}\t{item}\t3\t0\n" for user in range(9) for item in range(49)))
    with pytest.raises(InvalidArgumentError, match="there are 49 items, the experiments need at least 50") as caught:
        factors_of(None, path, 0)
    assert caught.value.field == "--ratings"


def test_factors_and_ratings_can_not_both_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="together with --ratings"):
        factors_of(tmp_path, tmp_path, 0)
