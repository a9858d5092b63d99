"""Rows of a file of Parquet, whose values are those that Python has: others stand for themselves, and mean nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.optional import import_extra
from topk_bandit.domain.values import RoundedFloat
from topk_bandit.tables.row_numbers import RowNumbers, without_row_numbers
from topk_bandit.tables.rows import FileRow, check_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

__all__ = ["read_parquet"]

_ROWS_AT_ONCE = 1000
_MOST_EXACT_HALF, _MOST_EXACT_SINGLE = 2.0**11, 2.0**24
"""Up to these each whole number is a float of 16 or 32 bits; beyond, some have lost digits."""

_NO_VALUE = (ValueError, OverflowError, NotImplementedError, TypeError)
"""What is raised, by pyarrow too, for a value that Python has no object for, such as a duration of nanoseconds."""


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A value that no reader takes; errors show its type."""

    kind: str

    def __repr__(self) -> str:
        return f"a value of {self.kind}"


def read_parquet(path: Path, ignored: Collection[str]) -> Iterator[FileRow]:
    """Return the rows of a file; columns that are ignored are not read, and have nothing in any row."""
    parquet, arrow = import_extra("pyarrow.parquet", "reading Parquet"), import_extra("pyarrow", "reading Parquet")
    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
    except (arrow.ArrowException, OSError) as error:
        raise InvalidArgumentError(path.name, f"is no whole Parquet file: {error}") from None
    check_names(path.name, names)
    number, counted = 0, dict[str, RowNumbers]()
    taken = [name for name in names if name not in ignored]
    nothing = dict.fromkeys(name for name in names if name in ignored)
    try:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=taken if nothing else None):
            columns = [_values_of(batch.column(name), arrow) for name in taken]
            for cells in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
                number += 1
                place = f"{path.name}, row {number}"
                values = dict(zip(taken, cells, strict=True)) | nothing
                yield FileRow(place, without_row_numbers(place, values, counted), named_at=path.name)
    except (arrow.ArrowException, OSError) as error:
        problem = f"can't be read after row {number}: {error}; pass over the column that is at fault: --ignore COLUMN"
        raise InvalidArgumentError(path.name, problem) from None


def _values_of(column: Any, arrow: Any) -> list[Any]:  # noqa: ANN401, pyarrow is imported only where it is needed
    """Return the values of a column."""
    is_map, cast = arrow.types.is_map(column.type), column
    try:
        for target in _targets(column.type, arrow):
            cast = cast.cast(target, safe=False)
        values = cast.to_pylist()
    except _NO_VALUE:
        values = [_value_of(one) for one in column]
    if (meant := _reader_of_short_floats(column.type, arrow)) is not None:
        values = list(map(meant, values))
    return [_object_of(one) for one in values] if is_map else values


def _reader_of_short_floats(kind: Any, arrow: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401
    """Return what says of a value of a type what its floats of 16 or 32 bits mean; None if it has none."""
    types = arrow.types
    if types.is_dictionary(kind):
        return _reader_of_short_floats(kind.value_type, arrow)
    if types.is_float32(kind) or types.is_float16(kind):
        return partial(_read_short_float, is_half=types.is_float16(kind))
    if types.is_struct(kind):
        of_fields = {field.name: _reader_of_short_floats(field.type, arrow) for field in kind}
        readers = {name: read for name, read in of_fields.items() if read is not None}
        return partial(_read_fields, readers) if readers else None
    if types.is_map(kind):
        read = _reader_of_short_floats(kind.item_type, arrow)
        return None if read is None else partial(_read_pairs, read)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        read = _reader_of_short_floats(kind.value_type, arrow)
        return None if read is None else partial(_read_parts, read)
    return None


def _read_short_float(value: Any, *, is_half: bool) -> Any:  # noqa: ANN401
    """Return a short float with the digits with which it is written, marked where it may have lost some."""
    if not isinstance(value, Real):
        return value
    number = float(str(_half(value))) if is_half else float(value)
    return RoundedFloat(number) if abs(number) >= (_MOST_EXACT_HALF if is_half else _MOST_EXACT_SINGLE) else number


def _half(value: Any) -> Any:  # noqa: ANN401
    import numpy as np  # noqa: PLC0415 - only where it is needed

    return np.float16(value)


def _read_parts(read: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    return list(map(read, value)) if isinstance(value, list) else value


def _read_pairs(read: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    return [(key, read(one)) for key, one in value] if isinstance(value, list) else value


def _read_fields(readers: Mapping[str, Callable[[Any], Any]], value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        return value
    return {name: readers[name](one) if name in readers else one for name, one in value.items()}


def _value_of(scalar: Any) -> Any:  # noqa: ANN401
    try:
        return scalar.as_py()
    except _NO_VALUE:
        return _Unreadable(str(scalar.type))


def _object_of(pairs: Any) -> Any:  # noqa: ANN401
    """Return what a map says by its keys, which may not be there twice."""
    if not isinstance(pairs, list):
        return pairs
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Unreadable("map with a key twice")


def _targets(kind: Any, arrow: Any) -> list[Any]:  # noqa: ANN401
    """Return the types that a column is cast to, one after the other, until Python has its values as they are meant.

    Floats of 32 bits have the digits with which they are written, as in CSV, and not those of the nearest float of
    Python. Times are of microseconds, and of UTC, since not all machines know all zones.
    """
    written = _cast_type(kind, arrow, arrow.string())
    return [] if written == kind else [written, _cast_type(kind, arrow, arrow.float64())]


def _cast_type(kind: Any, arrow: Any, of_floats: Any) -> Any:  # noqa: ANN401
    """Return a type with floats of 32 bits as `of_floats`, and times as Python has them."""
    types = arrow.types
    if types.is_float32(kind):
        return of_floats
    if types.is_timestamp(kind):
        return arrow.timestamp("us" if kind.unit == "ns" else kind.unit, "UTC" if kind.tz else None)
    if types.is_dictionary(kind):
        return _cast_type(kind.value_type, arrow, of_floats)
    if types.is_struct(kind):
        return arrow.struct([field.with_type(_cast_type(field.type, arrow, of_floats)) for field in kind])
    for is_list, make in (
        (types.is_map, lambda value: arrow.map_(kind.key_type, value)),
        (types.is_list, arrow.list_),
        (types.is_large_list, arrow.large_list),
        (types.is_fixed_size_list, lambda value: arrow.list_(value, kind.list_size)),
    ):
        if is_list(kind):
            field = kind.item_field if types.is_map(kind) else kind.value_field
            return make(field.with_type(_cast_type(field.type, arrow, of_floats)))
    return kind
