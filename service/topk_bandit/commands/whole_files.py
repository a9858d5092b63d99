"""Files that commands write: whole, or as they were before."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["write_whole"]


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """Yield where to write; it takes the place of `path` at the end of the block, and none if the block raises.

    A pipe or a device is written as it is. A file in a folder that takes no other is written at the end of the block.

    Raises
    ------
    ConfigurationError
        The file can't be written: an ``OSError`` of the block says so, too.
    """
    target = path.resolve()
    direct = target.exists() and not target.is_file()
    is_alone = target.is_file() and os.access(target, os.W_OK) and not os.access(target.parent, os.W_OK)
    folder = Path(gettempdir()) if is_alone else target.parent
    draft = target if direct else folder / f".topk-bandit-{secrets.token_hex(8)}.new"
    try:
        if not direct:
            draft.touch(mode=0o600 if is_alone else 0o666, exist_ok=False)
            if target.exists() and not is_alone:
                shutil.copymode(target, draft)
        yield draft
        if not direct:
            _sync(draft)
            _replace(target, draft)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        if not direct:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _replace(target: Path, draft: Path) -> None:
    try:
        draft.replace(target)
    except OSError:  # such as a file that is mounted alone, or whose folder takes no other
        shutil.copyfile(draft, target)


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
