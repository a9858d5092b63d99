"""A root that nobody can write, and no rights: the service starts, and takes what is compiled already with it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from numba.core.caching import UserProvidedCacheLocator
from tests.faults.service import compile_reports, serving
from tests.rpc.harness import channel_to
from tests.rpc.wire import create, recommend
from tests.waiting import until

import topk_bandit

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(*topk_bandit.__path__)
TEMPORARY = tempfile.gettempdir()
HARDENED = f"""
set -e
mount --make-rprivate /
mount --bind {TEMPORARY} {TEMPORARY}
mount -o remount,ro,bind /
cd /
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


@pytest.fixture(scope="module")
def hardened() -> list[str]:
    """Return the command that makes what follows it run where only temporary folders can be written."""
    prefix = ["unshare", "--mount", "bash", "-c", HARDENED, "hardened"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("only root may make a root that can't be written")
    return prefix


@pytest.fixture
def compiled() -> Iterator[Path]:
    """Return a folder of the root that has what is compiled beside the package, as an image has it."""
    with tempfile.TemporaryDirectory(prefix="tkb-compiled-", dir="/var/tmp") as name:
        for folder in PACKAGE.rglob("__pycache__"):
            beside = str(folder.parent / "any.py")
            target = Path(name) / UserProvidedCacheLocator.get_suitable_cache_subpath(beside)
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.pyc"))
        yield Path(name)


def test_it_starts_with_what_is_compiled(hardened: list[str], compiled: Path, tmp_path: Path) -> None:
    assert subprocess.run([*hardened, "touch", str(compiled / "one")], capture_output=True, check=False).returncode == 1
    variables = {"COMPILED_AHEAD_DIR": str(compiled), "NUMBA_CACHE_DIR": "/compiled"}
    with serving(tmp_path, prefix=hardened, variables=variables) as service:
        assert compile_reports(service.log) == []
        with channel_to(service.address) as channel:
            create(channel)
            assert not recommend(channel).degraded
        assert len(list(service.temporary.glob("topk-bandit-*-compiled-*/*/*/*.nbi"))) > 40


def test_it_starts_where_nothing_is_compiled(hardened: list[str], tmp_path: Path) -> None:
    with serving(tmp_path, start=False, prefix=hardened, variables={"NUMBA_CACHE_DIR": "/compiled"}) as service:
        service.spawn()
        until(lambda: len(compile_reports(service.log)) >= 2, what="it compiles")
