"""Where an experiment's factors come from: a file of them, ratings, or nothing at all.

A file of factors is an .npz with the arrays U and V (or users and items), or a folder with users.csv and items.csv, one
line of comma-separated numbers for each user and each item, without a head. Their inner products are attractions.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.lab.experiments import least_squares, ratings_file
from topk_bandit.lab.simulation.factors import synthetic
from topk_bandit.learning.environments import Factors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["LEAST_ITEMS", "LEAST_USERS", "factors_of", "load"]

FloatArray = NDArray[np.float64]

LEAST_USERS, LEAST_ITEMS = 5, 50
"""What the largest of the experiments needs."""

_ARRAYS = (("U", "V"), ("users", "items"))
_FILES = ("users.csv", "items.csv")


def factors_of(factors: Path | None, ratings: Path | None, seed: int) -> tuple[Factors, dict[str, object]]:
    """Return the factors that `--factors` and `--ratings` ask for, and what to write of them beside results.

    Parameters
    ----------
    factors
        A file of factors; see the module.
    ratings
        Ratings in one of MovieLens's formats, to find factors of; see `ratings_file` and `least_squares`.
    seed
        Of the synthetic factors that there are without either, and of where the search begins in ratings.

    Raises
    ------
    ConfigurationError
        A file can't be read, or implicit is needed and not installed.
    InvalidArgumentError
        Naming the flag: both are given, or what a file holds can't be used.
    """
    if factors and ratings:
        raise InvalidArgumentError("--factors", "can't be given together with --ratings")
    settings: dict[str, object] = {"factors": "synthetic"}
    if factors:
        found = load(factors)
        settings = {"factors": factors.name, "sha256": _digest(factors)}
    elif ratings:
        given = ratings_file.load(ratings)
        _check_size("--ratings", n_users=len(given.users), n_items=len(given.items))
        found = least_squares.factors_of(given, seed=seed)
        settings = {"factors": f"of {len(given.values)} ratings in {ratings.name}", "sha256": _digest(ratings)}
        settings |= least_squares.SETTINGS
    else:
        found = synthetic(np.random.default_rng(seed))
    return found, settings | {"factor_shapes": [list(found.users.shape), list(found.items.shape)]}


def load(path: Path) -> Factors:
    """Read an .npz or a folder; the module says what is in it.

    Raises
    ------
    ConfigurationError
        It can't be read.
    InvalidArgumentError
        Naming ``--factors``: it is neither; an array is missing, is no table of finite numbers, or has too few rows; or
        the two have not as many columns.
    """
    try:
        tables = _folder(path) if path.is_dir() else _npz(path)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or path} can't be read: {error.strerror or error}") from None
    (of_users, users), (of_items, items) = ((name, _table(path, name, table)) for name, table in tables.items())
    if users.shape[1] != items.shape[1]:
        shapes = f"{of_users} has shape {users.shape} and {of_items} {items.shape}"
        raise InvalidArgumentError("--factors", f"{path.name}: {shapes}: expected as many columns")
    _check_size("--factors", n_users=len(users), n_items=len(items))
    return Factors(users, items)


def _npz(path: Path) -> dict[str, NDArray[np.generic]]:
    if path.suffix != ".npz":
        problem = f"expected a file ending in .npz, or a folder with {' and '.join(_FILES)}, got {path.name!r}"
        raise InvalidArgumentError("--factors", problem)
    with path.open("rb") as file:
        if not is_zipfile(file):
            raise InvalidArgumentError("--factors", f"{path.name} is no .npz file")
        with np.load(file, allow_pickle=False) as arrays:
            for names in _ARRAYS:
                if set(names) <= set(arrays.files):
                    return {name: _member(path, arrays, name) for name in names}
            held = ", ".join(sorted(arrays.files)) or "none"
    raise InvalidArgumentError("--factors", f"{path.name}: expected arrays U and V, or users and items; it has {held}")


def _member(path: Path, arrays: Mapping[str, NDArray[np.generic]], name: str) -> NDArray[np.generic]:
    try:
        return np.asarray(arrays[name])
    except (BadZipFile, EOFError, ValueError, zlib.error) as error:
        raise InvalidArgumentError("--factors", f"{path.name}: array {name} can't be read: {error}") from None


def _folder(path: Path) -> dict[str, NDArray[np.generic]]:
    return {name: _csv(path / name) for name in _FILES}


def _csv(path: Path) -> FloatArray:
    rows: list[list[float]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig", errors="replace").splitlines(), start=1):
        try:
            rows.append([float(word) for word in line.split(",")])
        except ValueError:
            raise InvalidArgumentError("--factors", f"{path.name}, line {number}: expected numbers") from None
        if len(rows[-1]) != len(rows[0]):
            problem = f"expected {len(rows[0])} numbers, as in line 1, got {len(rows[-1])}"
            raise InvalidArgumentError("--factors", f"{path.name}, line {number}: {problem}")
    return np.array(rows)


def _table(path: Path, name: str, values: NDArray[np.generic]) -> FloatArray:
    if values.ndim != 2 or not values.size:
        raise InvalidArgumentError("--factors", f"{path.name}: {name} has shape {values.shape}, expected a table")
    if not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise InvalidArgumentError("--factors", f"{path.name}: {name} holds {values.dtype}, expected numbers")
    table = values.astype(np.float64)
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        problem = f"row {row}, column {column} is {table[row, column]}, expected finite numbers"
        raise InvalidArgumentError("--factors", f"{path.name}: {name}: {problem}")
    return table


def _check_size(flag: str, *, n_users: int, n_items: int) -> None:
    for what, number, least in (("users", n_users, LEAST_USERS), ("items", n_items, LEAST_ITEMS)):
        if number < least:
            raise InvalidArgumentError(flag, f"there are {number} {what}, the experiments need at least {least}")


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the files in a folder that can be read here, one after the other."""
    digest = hashlib.sha256()
    names = (*_FILES, *ratings_file.FILES)
    for part in [path / name for name in names if (path / name).is_file()] if path.is_dir() else [path]:
        with part.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
