"""Programs whose clock is set while they run, by the library of the program faketime."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.programs import find_program

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["OwnClock", "has_faketime"]


def has_faketime() -> bool:
    return shutil.which("faketime") is not None


class OwnClock:
    """A clock that a test sets; what passes is still the machine's time.

    Parameters
    ----------
    folder
        Where the file is that says how far ahead it is.
    """

    def __init__(self, folder: Path) -> None:
        find_program("faketime")
        self._ahead = folder / "ahead"
        self._ahead.write_text("+0")
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
        self.variables = {
            "FAKETIME_TIMESTAMP_FILE": str(self._ahead),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "LD_PRELOAD": str(library),
        }

    def set_ahead(self, by: timedelta) -> None:
        """Set it, from the machine's clock."""
        self._ahead.write_text(f"{by.total_seconds():+.0f}")

    def program(self, binary: Path) -> Path:
        """Return a program that goes by this clock."""
        program = self._ahead.with_name(binary.name)
        variables = " ".join(f"{name}={value}" for name, value in self.variables.items())
        program.write_text(f'#!/bin/sh\n{variables} exec {binary} "$@"\n')
        program.chmod(0o755)
        return program
