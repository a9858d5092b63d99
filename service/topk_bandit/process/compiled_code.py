"""Where compiled code is kept when the place that was chosen for it can't be written, or is empty.

Numba keeps it in `NUMBA_CACHE_DIR`, else beside the package, else in the user's cache; where it can write none of these
it would not load, and a temporary folder of this user's takes the code. An image has code that was compiled ahead, in
`COMPILED_AHEAD_DIR`. Numba writes where it reads, so a start copies that code to where it is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["AHEAD_VARIABLE", "CACHE_VARIABLE", "place_compiled_code"]

AHEAD_VARIABLE = "COMPILED_AHEAD_DIR"
CACHE_VARIABLE = "NUMBA_CACHE_DIR"

_BESIDE_THE_PACKAGE = Path(__file__).parents[1] / "learning" / "compiled"


def place_compiled_code(environment: MutableMapping[str, str], *, beside: Path = _BESIDE_THE_PACKAGE) -> None:
    """Make numba keep what it compiles where this user can write, in this process and in those it starts.

    To be called before numba is imported.

    Raises
    ------
    ConfigurationError
        If no temporary folder can be written either.
    """
    chosen, ahead = environment.get(CACHE_VARIABLE), environment.get(AHEAD_VARIABLE)
    can_be_written = any(map(_can_be_written, [Path(chosen)] if chosen else [beside, _users_cache(environment)]))
    if can_be_written and not ahead:
        return
    try:
        folder = Path(chosen) if chosen and can_be_written else _temporary_folder()
        if ahead:
            folder = _copied_into(folder, Path(ahead))
    except OSError as error:
        raise ConfigurationError(
            f"compiled code can't be kept, in {chosen or beside} nor in a temporary folder ({error}): "
            f"set {CACHE_VARIABLE} to a folder that can be written"
        ) from None
    environment[CACHE_VARIABLE] = str(folder)


def _users_cache(environment: MutableMapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", os.sep)) / ".cache") / "numba"


def _can_be_written(folder: Path) -> bool:
    """Return whether files can be made in a folder, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _temporary_folder() -> Path:
    """Return this user's own folder of this version, or a new one if somebody else has put one in its place.

    What is loaded from it is executed.
    """
    folder = Path(tempfile.gettempdir()) / f"topk-bandit-{version('topk-bandit')}-compiled-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if own else Path(tempfile.mkdtemp(prefix="topk-bandit-compiled-"))


def _copied_into(folder: Path, ahead: Path) -> Path:
    """Return a folder in this one with a copy of what was compiled ahead; another process may be making the same.

    Its name is made of what is in it: a volume that outlives an image gives no code to another image.
    """
    copy = folder / _digest(ahead)
    if not copy.is_dir():
        unfinished = Path(tempfile.mkdtemp(prefix=f"{copy.name}-", dir=folder))
        shutil.copytree(ahead, unfinished, copy_function=shutil.copyfile, dirs_exist_ok=True)
        try:
            unfinished.rename(copy)
        except OSError:
            shutil.rmtree(unfinished)
            if not copy.is_dir():
                raise
    return copy


def _digest(folder: Path) -> str:
    summary = hashlib.blake2b(digest_size=8)
    for path in sorted(folder.glob("*/*")):
        summary.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode())
        summary.update(path.read_bytes())
    return summary.hexdigest()
