from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.compiled_code import AHEAD_VARIABLE, CACHE_VARIABLE, place_compiled_code


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """Return a folder that not even root can make, since its parent is a file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "folder"


def placed(environment: dict[str, str], *, beside: Path) -> Path | None:
    """Return where compiled code is to be kept; None where numba may choose."""
    place_compiled_code(environment, beside=beside)
    return Path(environment[CACHE_VARIABLE]) if CACHE_VARIABLE in environment else None


def test_a_place_that_can_be_written_is_left_as_it_is(tmp_path: Path, nowhere: Path) -> None:
    assert placed({CACHE_VARIABLE: str(tmp_path / "chosen")}, beside=nowhere) == tmp_path / "chosen"
    assert placed({}, beside=tmp_path) is None
    assert placed({"HOME": str(tmp_path)}, beside=nowhere) is None
    assert placed({"XDG_CACHE_HOME": str(tmp_path), "HOME": str(nowhere)}, beside=nowhere) is None


def test_else_a_temporary_folder_of_this_user_takes_it(nowhere: Path, temporary: Path) -> None:
    first = placed({"HOME": str(nowhere)}, beside=nowhere)
    assert first is not None
    assert first.parent == temporary
    assert first.stat().st_mode & 0o777 == 0o700
    assert placed({"HOME": str(nowhere)}, beside=nowhere) == first
    assert placed({CACHE_VARIABLE: str(nowhere)}, beside=temporary) == first


@pytest.mark.parametrize("put", ["a link", "a file", "a folder for all"])
def test_what_somebody_put_in_its_place_is_not_used(nowhere: Path, tmp_path: Path, put: str) -> None:
    expected = placed({"HOME": str(nowhere)}, beside=nowhere)
    assert expected is not None
    expected.rmdir()
    (tmp_path / "trap").mkdir(mode=0o700)
    if put == "a link":
        expected.symlink_to(tmp_path / "trap")
    elif put == "a file":
        expected.write_text("")
    else:
        expected.mkdir()
        expected.chmod(0o777)
    found = placed({"HOME": str(nowhere)}, beside=nowhere)
    assert found is not None
    assert found.resolve() not in {expected.resolve(), tmp_path / "trap"}
    assert found.stat().st_mode & 0o777 == 0o700
    assert found.stat().st_uid == os.getuid()


@pytest.fixture
def ahead(tmp_path: Path) -> Path:
    """Return a folder with what was compiled ahead: as an image has it."""
    (tmp_path / "ahead/loops").mkdir(parents=True)
    (tmp_path / "ahead/loops/one.nbi").write_text("index")
    return tmp_path / "ahead"


def contents(folder: Path | None) -> dict[str, str]:
    assert folder is not None
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*")}


def test_what_was_compiled_ahead_is_copied_to_an_empty_place(tmp_path: Path, nowhere: Path, ahead: Path) -> None:
    environment = {CACHE_VARIABLE: str(tmp_path / "volume"), AHEAD_VARIABLE: str(ahead)}
    first = placed(dict(environment), beside=nowhere)
    assert first is not None
    assert first.parent == tmp_path / "volume"
    assert contents(first) == {"loops/one.nbi": "index"}
    (first / "loops/two.nbi").write_text("compiled by the first start")
    assert placed(dict(environment), beside=nowhere) == first
    assert len(contents(first)) == 2
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_what_was_compiled_ahead_is_copied_to_a_temporary_folder(nowhere: Path, temporary: Path, ahead: Path) -> None:
    for environment in ({CACHE_VARIABLE: str(nowhere)}, {"HOME": str(nowhere)}, {"HOME": str(temporary)}):
        found = placed({**environment, AHEAD_VARIABLE: str(ahead)}, beside=nowhere)
        assert contents(found) == {"loops/one.nbi": "index"}
        assert found is not None
        assert found.parents[1] == temporary


def test_a_place_of_another_image_gives_no_code_to_this_one(tmp_path: Path, nowhere: Path, ahead: Path) -> None:
    environment = {CACHE_VARIABLE: str(tmp_path / "volume"), AHEAD_VARIABLE: str(ahead)}
    older = placed(dict(environment), beside=nowhere)
    (ahead / "loops/one.nbi").write_text("INDEX")
    newer = placed(dict(environment), beside=nowhere)
    assert newer != older
    assert (contents(older), contents(newer)) == ({"loops/one.nbi": "index"}, {"loops/one.nbi": "INDEX"})


def test_without_any_place_the_error_names_the_variable(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(nowhere))
    with pytest.raises(ConfigurationError, match=f"set {CACHE_VARIABLE} to a folder"):
        placed({"HOME": str(nowhere)}, beside=nowhere)
