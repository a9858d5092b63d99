"""Lines on the screen or in a file, and bars of progress."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["in_utf8", "print_lines", "progress"]


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


def in_utf8(stream: TextIO) -> TextIO:
    """Have texts written in UTF-8 whatever the terminal has: they are read again, and checked by their bytes."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="strict")
    return stream


def progress() -> Progress:
    """Return bars on the screen, if standard error is one."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(file=sys.stderr)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
