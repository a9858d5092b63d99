"""Logged feedback of the Open Bandit Pipeline as rows of slates: of one item each, or of the positions of a slate.

https://zr-obp.readthedocs.io: a row is one position of what was shown. The Open Bandit Dataset has ``item_id``,
``click`` and ``propensity_score``; tables of its simulations have ``action``, ``reward`` and ``pscore``, and with
``slate_id`` the rows of one slate, each with the joint probability of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from topk_bandit.commands.imports.cells import check_there
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import is_missing, read_label, read_number
from topk_bandit.tables.rows import FileRow, read_value, require_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.commands.imports.cells import Named

__all__ = ["Feedback"]

_NAMES = {
    "item": ("item_id", "action", "item"),
    "reward": ("click", "reward"),
    "propensity": ("propensity_score", "action_prob", "pscore", "propensity"),
    "time": ("timestamp", "time"),
}
_SLATE, _POSITION = "slate_id", "position"

_Values: TypeAlias = "Mapping[str, Any] | InvalidArgumentError"


@dataclass(frozen=True, slots=True)
class Feedback:
    """Where rows of feedback have what.

    Attributes
    ----------
    columns
        The columns that may have each of `_NAMES`.
    slate_size
        The bandit's; slates of one need no ``slate_id``.
    flagged
        Those of the columns that flags name.
    """

    columns: Mapping[str, Sequence[str]]
    slate_size: int
    flagged: frozenset[str] = frozenset()

    @classmethod
    def of(cls, flags: Named, *, slate_size: int) -> tuple[Feedback, Named]:
        """Return how to read feedback by what flags such as ``reward=margin`` say, and the flags that are left."""
        named = {name: (flags.columns[name],) if name in flags.columns else several for name, several in _NAMES.items()}
        left = {name: column for name, column in flags.columns.items() if name not in _NAMES}
        flagged = frozenset(flags.columns[name] for name in _NAMES if name in flags.columns)
        return cls(named, slate_size, flagged), replace(flags, columns=left)

    def slates(self, rows: Iterator[FileRow]) -> Iterator[FileRow]:
        """Return rows of slates; those of one ``slate_id`` are one slate, whose reward is the sum of its positions'.

        Raises
        ------
        InvalidArgumentError
            Among them: a column that a flag names is in no row.
        """
        seen, slates = dict[str, None](), set[str]()
        for slate_id, several in groupby(_noting(rows, seen), key=_slate_of):
            group = list(several)
            if slate_id in slates:
                problem = (
                    f"{slate_id!r:.60} was there before: rows of one slate stand together, and ids are of one slate"
                )
                yield replace(group[0], values=InvalidArgumentError(f"column {_SLATE!r}", problem))
                continue
            slates |= {slate_id} if slate_id is not None else set()
            is_single = self.slate_size == 1 and slate_id is None
            for part in [[row] for row in group] if slate_id is None else [group]:
                slate = self._slate([row.values for row in part], is_single=is_single)
                yield replace(part[0], values=slate, own=self._own_names(part[0].values))
        check_there("--column", self.flagged, seen)

    def _slate(self, rows: Sequence[_Values], *, is_single: bool) -> _Values:
        try:
            shown = self._in_order(rows, is_single=is_single)
            said = [{name: self._get(one, name) for name in self.columns} for one in shown]
            others = [self._others(one) for one in shown]
            self._check_equal(said, others)
            reward = sum(self._number("reward", one["reward"]) for one in said)
        except InvalidArgumentError as error:
            return error
        items = {f"item_{number}": one["item"] for number, one in enumerate(said, start=1)}
        rest = {name: said[0][name] for name in ("propensity", "time") if not is_missing(said[0][name])}
        return {**others[0], **items, "reward": reward, **rest}

    def _in_order(self, rows: Sequence[_Values], *, is_single: bool) -> list[Mapping[str, Any]]:
        """Return the rows of a slate in the order of their positions."""
        found = []
        for row in rows:
            if isinstance(row, InvalidArgumentError):
                raise row
            found.append(row)
        if is_single:
            return found
        if read_value(f"column {_SLATE!r}", found[0].get(_SLATE), read_label) is None:
            raise InvalidArgumentError(f"column {_SLATE!r}", "is missing: rows are slates of one without it")
        positions = {self._number(_POSITION, row.get(_POSITION)): row for row in found}
        first = min(positions)
        if len(positions) < len(found):
            raise InvalidArgumentError(f"column {_POSITION!r}", "is the same twice in one slate")
        if sorted(positions) != [first + index for index in range(len(found))] or first not in {0.0, 1.0}:
            raise InvalidArgumentError(f"column {_POSITION!r}", "must count from 0 or 1 on, without a gap")
        return [positions[position] for position in sorted(positions)]

    def _check_equal(self, said: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> None:
        for index, one in enumerate(said):
            if is_missing(one["item"]):
                raise InvalidArgumentError(_field("item"), f"is missing at position {index + 1}")
            for name in ("propensity", "time"):
                if not _are_equal(one[name], said[0][name]):
                    raise InvalidArgumentError(_field(name), "differs within one slate")
            for name, value in others[index].items():
                if value != others[0].get(name):
                    raise InvalidArgumentError(f"column {name!r}", "differs within one slate")

    def _get(self, values: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401, whatever a file has
        there = [column for column in self.columns[name] if column in values]
        if len(there) > 1:
            problem = f"says what {there[0]!r} says, too: leave one of them out"
            raise InvalidArgumentError(f"column {there[1]!r}", problem)
        return values[there[0]] if there else None

    def _others(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of columns that may be features."""
        known = {_SLATE, _POSITION, *_NAMES, *(column for columns in self.columns.values() for column in columns)}
        return {name: value for name, value in values.items() if name not in known}

    def _number(self, name: str, value: Any) -> float:  # noqa: ANN401, whatever a file has
        return require_value(_field(name), value, read_number)

    def _own_names(self, values: _Values) -> dict[str, str]:
        """Return what the file calls the columns that errors name as `_NAMES` does."""
        there = () if isinstance(values, InvalidArgumentError) else values
        own = {name: [one for one in several if one in there] or several for name, several in self.columns.items()}
        fields = {_field(name): f"column {' or '.join(map(repr, several))}" for name, several in own.items()}
        items = dict.fromkeys(
            (_field(f"item_{number}") for number in range(1, self.slate_size + 1)), fields[_field("item")]
        )
        return fields | items


def _are_equal(one: object, other: object) -> bool:
    """Return whether two cells say the same: 0.5 and 0.50 do, and so do two that say nothing."""
    if one == other or (is_missing(one) and is_missing(other)):
        return True
    try:
        number = read_number(one)
        return number is not None and number == read_number(other)
    except ValueError:
        return False


def _noting(rows: Iterator[FileRow], seen: dict[str, None]) -> Iterator[FileRow]:
    """Return rows, and note the names of their columns."""
    for row in rows:
        if not isinstance(row.values, InvalidArgumentError):
            seen.update(dict.fromkeys(row.values))
        yield row


def _field(name: str) -> str:
    return f"column {name!r}"


def _slate_of(row: FileRow) -> str | None:
    """Return the id of a row's slate; None for a row of its own, and for one whose id can't be read."""
    try:
        return None if isinstance(row.values, InvalidArgumentError) else read_label(row.values.get(_SLATE))
    except ValueError:
        return None
