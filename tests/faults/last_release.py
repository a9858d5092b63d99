"""The program of the last release, run from its own source: what it writes is what this program has to read.

The commit moves when a version is released. Until 0.2.0 is, the first version that knows a data version, it also moves
with a change of what is stored or learned.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

__all__ = ["COMMIT", "DATA_VERSION", "release_command"]

COMMIT = "1d6d9fe44b92"
"""The last release's commit."""

DATA_VERSION = 1
"""The newest that it reads: what is in force on a store that it may take over."""

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".venv" / "last-release"


@cache
def release_command() -> tuple[str, ...]:
    """Return the command of the last release, in this environment's packages."""
    source = KEPT / COMMIT
    if not source.exists():
        _unpack(source)
    return ("env", f"PYTHONPATH={source / 'service'}", sys.executable, "-m", "topk_bandit")


def _unpack(source: Path) -> None:
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", COMMIT, "service"], capture_output=True, check=False
    )
    if packed.returncode and (not (ROOT / ".git").exists() or (ROOT / ".git" / "shallow").exists()):
        pytest.skip("needs the last release: git fetch --unshallow")
    assert not packed.returncode, packed.stderr
    KEPT.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix="part-", dir=KEPT))
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(part, filter="data")
    try:
        part.rename(source)
    except OSError:  # another process was faster
        shutil.rmtree(part)
