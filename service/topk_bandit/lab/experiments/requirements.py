"""What an experiment needs of the machine and of the files that are named, checked before anything slow begins.

All that is missing is reported at once. Only the first lines of the files are read here. What is wrong with a later
line is reported when it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError, TopkBanditError
from topk_bandit.domain.optional import missing
from topk_bandit.lab.experiments import ratings_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["check"]


def check(given: argparse.Namespace) -> None:
    """Raise unless a call with the flags of `arguments` has the packages and the files that it needs.

    Raises
    ------
    ConfigurationError
        A package is not installed or a file can't be read, or more than one thing is wrong; the message names them all.
    InvalidArgumentError
        Naming the flag: what a file holds can't be used.
    """
    problems = list(_problems(given))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise ConfigurationError(f"this run can't begin, for {len(problems)} reasons:\n{lines}")


def _problems(given: argparse.Namespace) -> Iterator[TopkBanditError]:
    for package, purpose, extra in _packages(given):
        if problem := missing(package, purpose, extra=extra):
            yield ConfigurationError(problem)
    for flag in ("factors", "data", "costs"):
        path: Path | None = getattr(given, flag, None)
        if path is not None and not path.exists():
            yield ConfigurationError(f"{path} can't be read: No such file or directory")
    if getattr(given, "ratings", None) is not None:
        try:
            ratings_file.check(given.ratings)
        except TopkBanditError as error:
            yield error


def _packages(given: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Return the packages that are needed, what for, and the extra of this distribution that they come with."""
    yield "matplotlib", "drawing figures", "experiments"
    if given.experiment == "all":
        yield "jinja2", "writing the report", "experiments"
    if getattr(given, "ratings", None) is not None:
        yield "implicit", "factors of ratings", "ratings"
    data: Path | None = getattr(given, "data", None)
    if data is not None and data.suffix == ".parquet":
        yield "pyarrow", "reading Parquet", "experiments"
