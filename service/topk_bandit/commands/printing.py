"""Lines on the screen or in a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["print_lines"]


def print_lines(written: Iterable[str], file: TextIO, *, at_once: bool = False) -> bool:
    """Write lines, each at once if need be, and end quietly when nobody reads on, as after `| head`.

    Returns whether they are still read.
    """
    try:
        for line in written:
            print(line, file=file, flush=at_once)
        file.flush()
    except BrokenPipeError:
        # What is left in the buffer must not be tried again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
        return False
    return True
