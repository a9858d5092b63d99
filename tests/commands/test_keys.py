"""`topk-bandit keys` as a person meets it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from topk_bandit.process.keys_file import read_keys

if TYPE_CHECKING:
    from pathlib import Path

    from tests.commands.test_cli import Run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_a_key_is_made_listed_and_revoked(run: Run, file: Path) -> None:
    made = run("keys", "create", "--tenant=shop", "--scope=reward", "--scope=recommend", f"--keys-file={file}")
    assert (made.returncode, made.stderr) == (0, "keep it: it can't be shown again\n")
    key_id, secret = made.stdout.strip().split(".")
    assert len(secret) == 43
    assert secret not in file.read_text()
    assert read_keys(file).find(f"Bearer {key_id}.{secret}")
    listed = run("keys", "list", TOPK_BANDIT_KEYS_FILE=str(file))
    assert re.fullmatch(rf"{key_id}  shop  recommend,reward  20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", listed.stdout)
    assert run("keys", "revoke", key_id, f"--keys-file={file}").stdout == f"revoked {key_id}\n"
    assert read_keys(file).keys == ()


def test_a_third_key_of_a_kind_is_refused(run: Run, file: Path) -> None:
    words = ("keys", "create", "--tenant=*", "--scope=operate", f"--keys-file={file}")
    first, second, third = (run(*words) for _ in range(3))
    ids = " and ".join(one.stdout.partition(".")[0] for one in (first, second))
    assert (third.returncode, third.stdout) == (1, "")
    assert third.stderr == (
        f"topk-bandit: every tenant has two keys with the scopes operate already, {ids}: revoke one first\n"
    )
    assert len(read_keys(file).keys) == 2


@pytest.mark.parametrize(("to", "said"), [(">/dev/full", "the output can't be written"), (">&-", "output is closed")])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")  # noqa: PTH110
def test_a_key_that_nobody_could_read_is_not_kept(file: Path, to: str, said: str) -> None:
    made = f"{sys.executable} -m topk_bandit keys create --tenant=shop --scope=reward --keys-file={file} {to}"
    ended = subprocess.run(["sh", "-c", made], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert not file.exists() or read_keys(file).keys == ()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("create", "--tenant=a/b", "--scope=reward", "--keys-file={file}"), "'a/b' is no tenant"),
        (("create", "--tenant=a", "--scope=reward", "--keys-file=/nowhere/keys"), "keys_file: /nowhere/keys can't be "),
        (("create", "--tenant=a", "--scope=reward"), "keys_file: say where the keys are"),
        (("list", "--keys-file={file}"), "keys_file: "),
        (("revoke", "some", "--keys-file={file}"), "there is no key 'some'"),
    ],
)
def test_what_cannot_be_done_is_reported_in_a_line(run: Run, file: Path, words: tuple[str, ...], problem: str) -> None:
    done = run("keys", *(word.format(file=file) for word in words))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"topk-bandit: {problem}")
    assert done.stderr.count("\n") == 1


def test_a_scope_that_there_is_not_is_a_wrong_call(run: Run, file: Path) -> None:
    done = run("keys", "create", "--tenant=a", "--scope=all", f"--keys-file={file}")
    assert done.returncode == 2
    assert "--scope: invalid choice: 'all' (choose from " in done.stderr
    for scope in ("recommend", "reward", "manage", "operate"):
        assert scope in done.stderr.rpartition("choose from")[2]
    assert not file.exists()
