"""The embedded store's log, examined and repaired while no server has it.

What comes after a damaged place can't be distinguished from it. It is cut off, after a copy was made. Only the newest
file of the log can be cut: a server refuses a log with a hole.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.store.embedded import LOG_FOLDER, MANIFEST, check_manifest, hold, server_binary

__all__ = ["LogReport", "examine_log", "repair_log"]

_CHECKER = "valkey-check-aof"
"""What the server's program is called for: it is the checker, too, under this name."""
_ANALYZED = re.compile(r"size=(\d+), ok_up_to=(\d+)")
_NAMED = re.compile(r"file (\S+) seq (\d+) type ([bhi])(?: .*)?")
"""A line of the manifest: a base, a file of before, or one that was appended to."""


@dataclass(frozen=True, slots=True)
class LogReport:
    """What was found in the newest file of a log.

    Attributes
    ----------
    n_bytes, good_bytes
        Its size, and how much of it from its beginning is whole writes.
    """

    file: Path
    n_bytes: int
    good_bytes: int

    @property
    def is_good(self) -> bool:
        """Whether all of it is."""
        return self.n_bytes == self.good_bytes


def examine_log(folder: Path) -> LogReport:
    """Examine the log of a data folder, and change nothing.

    Raises
    ------
    ConfigurationError
        A process has the folder, there is no log in it, or nothing can examine it.
    """
    with hold(_with_log(folder)):
        return _check(_newest(folder))


def repair_log(folder: Path) -> tuple[LogReport, Path | None]:
    """Cut off what can't be read; return what was found, and where the log was copied to, None if it was good.

    Raises
    ------
    ConfigurationError
        As for `examine_log`; or the copy can't be made, and then nothing was changed.
    """
    with hold(_with_log(folder)):
        report = _check(_newest(folder))
        return report, None if report.is_good else _cut_log(folder, report)


def _cut_log(folder: Path, report: LogReport) -> Path:
    try:
        copied = _copy(folder)
        with report.file.open("r+b") as opened:
            opened.truncate(report.good_bytes)
    except OSError as error:
        raise ConfigurationError(f"the log in {folder} can't be repaired: {error.strerror or error}") from error
    return copied


def _with_log(folder: Path) -> Path:
    if not (folder / LOG_FOLDER).is_dir():
        raise ConfigurationError(f"there is no log of a store in {folder}")
    return folder


def _newest(folder: Path) -> Path:
    """Return the newest file of a log, once its manifest and the files that it names are there."""
    check_manifest(folder)
    manifest, files = folder / LOG_FOLDER / MANIFEST, dict[int, Path]()
    try:
        lines = manifest.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ConfigurationError(f"there is no log of a store in {folder}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{manifest} can't be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        named = _NAMED.fullmatch(line)
        if named is None:
            problem = f"{manifest}, line {number}: names no file of a log: put it back, from a copy of the whole folder"
            raise ConfigurationError(problem)
        if named[3] != "h" and not (folder / LOG_FOLDER / named[1]).is_file():
            raise ConfigurationError(f"{folder / LOG_FOLDER} has no {named[1]}, which {MANIFEST} names")
        if named[3] == "i":
            files[int(named[2])] = folder / LOG_FOLDER / named[1]
    if not files:
        raise ConfigurationError(f"{manifest} names no file that was appended to")
    return files[max(files)]


def _check(file: Path) -> LogReport:
    """Have the server's own checker say how far the file can be read."""
    try:
        done = subprocess.run(  # noqa: S603
            [_CHECKER, str(file)], executable=server_binary(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ConfigurationError(f"the server's program can't be run: {error.strerror}") from error
    if not (found := _ANALYZED.search(done.stdout)):
        raise ConfigurationError(f"{file} can't be examined: {(done.stdout + done.stderr).strip()}")
    return LogReport(file, int(found[1]), int(found[2]))


def _copy(folder: Path) -> Path:
    number = 1
    while (target := folder / f"{LOG_FOLDER}.damaged-{number}").exists():
        number += 1
    shutil.copytree(folder / LOG_FOLDER, target)
    return target
