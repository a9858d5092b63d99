"""The keys file: read by whoever serves, changed by ``topk-bandit keys``."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.keys import KeyRing, parse_keys, print_keys
from topk_bandit.rpc.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["change_keys", "read_keys"]

_OTHERS_WRITE = 0o002


def read_keys(path: Path) -> KeyRing:
    """Return the keys of a file.

    Raises
    ------
    ConfigurationError
        It can't be read, is no keys file, or every user of the machine can write it.
    """
    try:
        _check_mode(path)
        return parse_keys(read_regular(path).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"keys_file: {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"keys_file: {path}: is not UTF-8") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"keys_file: {path}: {error}") from None


def _check_mode(path: Path) -> None:
    if path.stat().st_mode & _OTHERS_WRITE:
        raise ConfigurationError("can be written by every user: chmod o-w takes that away")


def change_keys(path: Path, change: Callable[[KeyRing], KeyRing]) -> None:
    """Put other keys into a file, which is made if need be; who reads meanwhile sees the old ones or the new ones.

    Raises
    ------
    ConfigurationError
        The file can't be read or written, or `change` refuses.
    """
    target = path.resolve()  # a link stays one
    try:
        with _alone(target.parent):
            before = read_keys(target) if target.exists() else KeyRing()
            _replace(target, print_keys(change(before)))
    except OSError as error:
        raise ConfigurationError(f"keys_file: {path} can't be written: {error.strerror}") from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep out whoever else changes keys in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(target: Path, text: str) -> None:
    before = target.stat() if target.exists() else None
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if before is not None:
                _keep_readers(file.fileno(), before)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _keep_readers(handle: int, before: os.stat_result) -> None:
    """Let those read a new file who could read the one that it replaces; a new one is its maker's alone."""
    with suppress(PermissionError):
        os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, before.st_mode & 0o777)
