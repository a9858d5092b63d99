"""Where compiled code is kept when the place that was chosen for it can't be written.

What numba has compiled is kept in `NUMBA_CACHE_DIR`, else beside the package, else in the user's cache. In an image
with a read-only root, or for a user without a home, none of these can be written, and numba would refuse to load. Then
a temporary folder of this user's takes it, beginning with what the place that can't be written had.
"""

from __future__ import annotations

import contextlib
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

__all__ = ["CACHE_VARIABLE", "place_compiled_code"]

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
    chosen = environment.get(CACHE_VARIABLE)
    if any(map(_can_be_written, [Path(chosen)] if chosen else [beside, _users_cache(environment)])):
        return
    try:
        folder = _temporary_folder()
        if chosen:
            _copy_into(Path(chosen), folder)
    except OSError as error:
        raise ConfigurationError(
            f"compiled code can't be kept, in {chosen or beside} nor in a temporary folder ({error}): "
            f"set {CACHE_VARIABLE} to a folder that can be written"
        ) from None
    environment[CACHE_VARIABLE] = str(folder)


def _users_cache(environment: MutableMapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", os.sep)) / ".cache") / "numba"


def _can_be_written(folder: Path) -> bool:
    """Tell whether files can be made in a folder, which is made if it is not there."""
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


def _copy_into(source: Path, target: Path) -> None:
    """Copy what is compiled already, if it can be read; another process may be doing the same."""
    for path in source.glob("*/*"):
        copy = target / path.relative_to(source)
        if copy.exists():
            continue
        copy.parent.mkdir(exist_ok=True)
        unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copyfile(path, unfinished)
        unfinished.replace(copy)
