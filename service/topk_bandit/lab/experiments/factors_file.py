"""Where an experiment's factors come from: a file of them, ratings, or nothing at all.

A file of factors is an .npz with the arrays U and V (or users and items), or a folder with users.csv and items.csv, one
line of comma-separated numbers for each user and each item, without a head. Their inner products are attractions.
"""

from __future__ import annotations

import hashlib
import math
from tokenize import TokenError
from typing import TYPE_CHECKING
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.values import read_number
from topk_bandit.lab.experiments import least_squares, ratings_file
from topk_bandit.lab.experiments.ratings_file import DAMAGED
from topk_bandit.lab.simulation.factors import synthetic
from topk_bandit.learning.environments import Factors
from topk_bandit.tables.rows import check_end

if TYPE_CHECKING:
    from pathlib import Path
    from zipfile import ZipFile

    from numpy.lib.npyio import NpzFile

__all__ = ["LEAST_ITEMS", "LEAST_USERS", "factors_of", "load"]

FloatArray = NDArray[np.float64]

LEAST_USERS, LEAST_ITEMS = 5, 50
"""What the largest of the experiments needs."""

_LARGEST = 1e100
"""Larger numbers have no inner products."""

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


def _member(path: Path, arrays: NpzFile, name: str) -> NDArray[np.generic]:
    try:
        if arrays.zip is not None:
            _check_extent(arrays.zip, name)
        return np.asarray(arrays[name])
    except (*DAMAGED, OverflowError, SyntaxError, TokenError, ValueError) as error:
        raise InvalidArgumentError("--factors", f"{path.name}: array {name} can't be read: {error}") from None


def _check_extent(archive: ZipFile, name: str) -> None:
    """Raise `ValueError` for an array that says that it has more than the archive holds of it."""
    member = f"{name}.npy" if f"{name}.npy" in archive.namelist() else name
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
    if math.prod(shape) * kind.itemsize > archive.getinfo(member).file_size:
        raise ValueError(f"it is cut: shape {shape} is more than there is")


def _folder(path: Path) -> dict[str, NDArray[np.generic]]:
    return {name: _csv(path / name) for name in _FILES}


def _csv(path: Path) -> FloatArray:
    rows: list[list[float]] = []
    number = 1
    with path.open(encoding="utf-8-sig") as file:
        try:
            for line in file:
                if line.strip():
                    rows.append(_numbers(line, len(rows[0]) if rows else None))
                number += 1
        except ValueError as error:  # a text that is not in UTF-8 is one, too
            raise InvalidArgumentError("--factors", f"{path.name}, line {number}: {error}") from None
    try:
        if rows:
            check_end(path, number - 1)
    except InvalidArgumentError as error:
        raise InvalidArgumentError("--factors", str(error)) from None
    return np.array(rows)


def _numbers(line: str, width: int | None) -> list[float]:
    words = line.split(",")
    if width is not None and len(words) != width:
        raise ValueError(f"expected {width} numbers, as in line 1, got {len(words)}")
    numbers = [read_number(word.strip()) for word in words]
    if None in numbers:
        raise ValueError(f"number {numbers.index(None) + 1} is missing")
    return [number for number in numbers if number is not None]


def _table(path: Path, name: str, values: NDArray[np.generic]) -> FloatArray:
    if values.ndim != 2 or not values.size:
        raise InvalidArgumentError("--factors", f"{path.name}: {name} has shape {values.shape}, expected a table")
    if not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise InvalidArgumentError("--factors", f"{path.name}: {name} holds {values.dtype}, expected numbers")
    table = values.astype(np.float64)
    if (wrong := ~(np.abs(table) <= _LARGEST)).any():  # NaN is in no interval
        row, column = np.argwhere(wrong)[0]
        problem = f"row {row + 1}, column {column + 1} is {table[row, column]}, expected numbers up to {_LARGEST:g}"
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
