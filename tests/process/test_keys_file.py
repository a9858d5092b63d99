from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from tests.rpc.keys import key, ring

from topk_bandit.domain.access import Scope
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.keys_file import change_keys, read_keys
from topk_bandit.rpc.keys import KeyRing, new_key, print_keys

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_made_for_its_owner_alone_and_then_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    change_keys(file, lambda none: KeyRing((*none.keys, *ring().keys)))
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    change_keys(file, lambda before: before.with_key(key("second")))
    assert file.stat().st_mode & 0o777 == 0o640
    assert read_keys(file).keys == ring(key("second")).keys
    assert file.read_bytes().startswith(b"{"), "whatever reads JSON reads it"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_keeps_its_owner_whoever_changes_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    change_keys(file, lambda _: ring())
    os.chown(file, 10_001, 10_002)
    change_keys(file, lambda before: before.with_key(key("second")))
    assert (file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777) == (10_001, 10_002, 0o600)


def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    change_keys(file, lambda _: ring())
    before = file.read_bytes()
    with pytest.raises(ConfigurationError, match="there is no key"):
        change_keys(file, lambda keys: keys.without("nobody"))
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "keys.json"
    link.symlink_to(tmp_path / "far" / "keys.json")
    change_keys(link, lambda _: ring())
    assert link.is_symlink()
    assert read_keys(link).keys == ring().keys


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    def add(number: int) -> None:
        added = new_key(key_id=f"k{number}", secret="s", tenant=f"t{number}", scopes=Scope, created="")
        change_keys(tmp_path / "keys.json", lambda keys: keys.with_key(added))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.id for one in read_keys(tmp_path / "keys.json").keys} == {f"k{number}" for number in range(12)}


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"keys_file: {tmp_path}/none/keys can't be written: No such file"):
        change_keys(tmp_path / "none" / "keys", lambda _: ring())


def test_a_file_that_every_user_can_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(print_keys(ring()))
    for mode in (0o600, 0o644, 0o660):
        file.chmod(mode)
        assert read_keys(file).keys == ring().keys
    for mode in (0o666, 0o602):
        file.chmod(mode)
        with pytest.raises(ConfigurationError, match="can be written by every user: chmod o-w"):
            read_keys(file)
