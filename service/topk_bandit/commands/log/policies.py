"""The policies that a log is asked about: slates that are shown always, those of a file, and those of a function."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topk_bandit.commands.imports.cells import Cells, Named
from topk_bandit.commands.imports.reading import Reading
from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.features import Features
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.values import read_label
from topk_bandit.tables.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.commands.log.slates import AskedRequests
    from topk_bandit.domain.features import Context

__all__ = ["AskedPolicy", "check_policies", "fixed_policy", "policy_of_file", "policy_of_function"]


class AskedPolicy(NamedTuple):
    """What it is called, on which requests it has a slate, shape (N,), and the slates of these, shape (A, k).

    Where it has none anywhere, `nowhere` says so.
    """

    title: str
    could: NDArray[np.bool_]
    slates: NDArray[np.int32]
    nowhere: InvalidArgumentError


def check_policies(asked: Sequence[Sequence[AskedPolicy]]) -> None:
    """Raise `InvalidArgumentError` for a policy that has no slate on any request.

    Parameters
    ----------
    asked
        The same policies, for each of several parts of the requests.
    """
    for of_parts in zip(*asked, strict=True):
        if not any(one.could.any() for one in of_parts):
            raise of_parts[0].nowhere


def fixed_policy(asked: AskedRequests, ids: Sequence[str]) -> AskedPolicy:
    """Return the policy that shows the slate of these ids always, on the requests that could show it.

    Raises
    ------
    InvalidArgumentError
        An item is unknown, or their number is wrong.
    """
    try:
        slate = _Items.of(asked).slate(ids)
    except ValueError as error:
        raise InvalidArgumentError("--slate", str(error)) from None
    could = np.asarray(asked.eligible[:, slate].all(axis=1))
    nowhere = InvalidArgumentError("--slate", f"no request could have shown {','.join(ids)}")
    return AskedPolicy(f"always {','.join(ids)}", could, np.tile(slate, (int(could.sum()), 1)), nowhere)


def policy_of_file(asked: AskedRequests, path: Path) -> AskedPolicy:
    """Return the policy of a file that has a slate for recommendations, by their ids; the others are left out.

    Raises
    ------
    InvalidArgumentError
        Naming the line and the column: a column is missing, an item is unknown, comes twice or could not be shown to
        the request, a recommendation comes twice.
    ConfigurationError
        The file can't be read.
    """
    size, items = asked.slate_size, _Items.of(asked)
    reading = Reading(path.name, lambda: read_rows(path), _SlateColumns.of(size))
    found = reading.look_through(skips=False)
    if found.strangers:
        raise InvalidArgumentError(path.name, f"columns that mean nothing to a slate: {', '.join(found.strangers)}")
    requests = {one.recommendation_id: row for row, one in enumerate(asked.requests)}
    slates: dict[int, NDArray[np.int32]] = {}
    seen: set[str] = set()
    for row in reading.rows():
        recommendation_id, ids = reading.read(row)
        if recommendation_id in seen:
            problem = f"{recommendation_id!r} is there twice"
            raise InvalidArgumentError(f"{row.place}, column 'recommendation_id'", problem)
        seen.add(recommendation_id)
        try:
            slate = items.slate(ids)
            if (request := requests.get(recommendation_id)) is not None:
                slates[request] = items.check_shown(request, ids, slate)
        except ValueError as error:
            raise InvalidArgumentError(f"{row.place}, items", str(error)) from None
    nowhere = InvalidArgumentError(path.name, "none of its recommendations is among those that are evaluated")
    could = np.zeros(len(asked), dtype=bool)
    could[list(slates)] = True
    return AskedPolicy(f"slates of {path.name}", could, np.array([slates[row] for row in sorted(slates)]), nowhere)


def policy_of_function(asked: AskedRequests, name: str) -> AskedPolicy:
    """Return the policy of a Python function, MODULE:NAME, that gets a context and items and returns a slate.

    It is called with the context, a tuple of numbers or a dict of features, and the ids of the items that could be
    shown.

    Raises
    ------
    ConfigurationError
        There is no such module or function.
    InvalidArgumentError
        It raised an error, or what it returned is no slate of these items.
    """
    choose, slates, items = _load(name), [], _Items.of(asked)
    for row, request in enumerate(asked.requests):
        could_show = [asked.item_ids[place] for place in np.flatnonzero(asked.eligible[row])]
        try:
            ids = list(choose(_plain(request.context), could_show))
            slates.append(items.check_shown(row, ids, items.slate(ids)))
        except Exception as error:
            problem = str(error) if type(error) is ValueError else repr(error)
            raise InvalidArgumentError("--function", f"{name}, {request.recommendation_id}: {problem}") from error
    nowhere = InvalidArgumentError("--function", f"{name} was asked about no request")
    return AskedPolicy(f"slates of {name}", np.ones(len(asked), dtype=bool), np.array(slates), nowhere)


def _load(name: str) -> Callable[[Any, list[str]], Iterable[str]]:
    module, _, function = name.partition(":")
    if not (module and function):
        raise ConfigurationError(f"--function: expected MODULE:NAME, such as shop.ranking:choose, got {name!r}")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        found: Callable[[Any, list[str]], Iterable[str]] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"--function: {name} can't be loaded: {error}") from error
    finally:
        sys.path.remove(folder)
    if not callable(found):
        raise ConfigurationError(f"--function: {name} is no function")
    return found


def _plain(context: Context) -> tuple[float, ...] | dict[str, Any]:
    return dict(context.values) if isinstance(context, Features) else context


@dataclass(frozen=True, slots=True)
class _Items:
    """The indices of items by their ids, how many a slate has, and which each request could show."""

    indices: Mapping[str, int]
    size: int
    eligible: NDArray[np.bool_]

    @classmethod
    def of(cls, asked: AskedRequests) -> _Items:
        indices = {item_id: index for index, item_id in enumerate(asked.item_ids) if item_id}
        return cls(indices, asked.slate_size, asked.eligible)

    def slate(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return a slate; `ValueError` says what is wrong with it."""
        if unknown := [item_id for item_id in ids if item_id not in self.indices]:
            nearest = find_nearest(str(unknown[0]), self.indices)
            raise ValueError(f"the log has no item {unknown[0]!r}" + (f": is it {nearest!r}?" if nearest else ""))
        if not len(ids) == len(set(ids)) == self.size:
            raise ValueError(f"expected {self.size} different items, got {','.join(ids)}")
        return np.array([self.indices[item_id] for item_id in ids], dtype=np.int32)

    def check_shown(self, request: int, ids: Sequence[str], slate: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return a slate of these ids if the request could show it; `ValueError` says which item it could not."""
        for item_id, index in zip(ids, slate.tolist(), strict=True):
            if not self.eligible[request, index]:
                raise ValueError(f"item {item_id!r} could not be shown to this request")
        return slate


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlateColumns(Cells):
    """Where a row has what of a slate: the id of its recommendation, and its items, best first."""

    has_flags = False
    size: int

    @classmethod
    def of(cls, size: int) -> _SlateColumns:
        items = frozenset({"items", "item_1"})
        known = items | {"recommendation_id", *(f"item_{number}" for number in range(1, size + 1))}
        return cls(flags=Named(), known=known, required=(frozenset({"recommendation_id"}), items), size=size)

    def columns_of(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values

    def read_row(self, values: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Return the recommendation and the ids of its items, or raise `InvalidArgumentError` naming the column."""
        named = self.take(values)
        recommendation_id = self.require("recommendation_id", named.get("recommendation_id"), read_label)
        parts = self.parts(named, "items", "item", self.size)
        names = self.names_of_parts(named, "items", "item", self.size)
        return recommendation_id, [self.text(name, part) for name, part in zip(names, parts, strict=False)]
