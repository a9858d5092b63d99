"""A bandit as a Parquet file: a row a line, with the figures of events that are asked for most as columns.

The event itself is a column too, as JSON, and lines that are no events are another, so that nothing is lost.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import ConfigurationError, CorruptDataError
from topk_bandit.domain.optional import import_extra
from topk_bandit.store.archives import EventFigures, event_figures
from topk_bandit.store.event_lines import event_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["read_parquet", "write_parquet"]

_ROWS_AT_ONCE = 10_000
_PURPOSE = "Parquet"
_NO_EVENT = (None,) * len(EventFigures._fields)


def write_parquet(path: Path, lines: Iterable[str]) -> None:
    """Write a bandit's lines to a file.

    Raises
    ------
    ConfigurationError
        Pyarrow is not installed.
    OSError
        The file can't be written.
    """
    lib, parquet = import_extra("pyarrow.lib", _PURPOSE), import_extra("pyarrow.parquet", _PURPOSE)
    schema, left = _schema(lib), iter(lines)
    with parquet.ParquetWriter(path, schema) as writer:
        part = list(islice(left, _ROWS_AT_ONCE))
        while True:
            writer.write_table(_table(lib, schema, part))
            if len(part) < _ROWS_AT_ONCE:
                break
            part = list(islice(left, _ROWS_AT_ONCE))


def _schema(lib: Any) -> Any:  # noqa: ANN401 - of a library that may not be there
    columns = {
        "position": lib.int64(),
        "time": lib.timestamp("ms", "UTC"),
        "type": lib.string(),
        "recommendation_id": lib.string(),
        "slate": lib.list_(lib.string()),
        "propensity": lib.float64(),
        "position_propensities": lib.list_(lib.float64()),
        "explored": lib.bool_(),
        "value": lib.float64(),
        "item_values": lib.list_(lib.float64()),
        "event": lib.string(),
        "line": lib.string(),
    }
    return lib.schema(list(columns.items()))


def _table(lib: Any, schema: Any, lines: Sequence[str]) -> Any:  # noqa: ANN401 - as above
    """Return the rows of lines, made a column at once."""
    columns = zip(*map(_row, lines), strict=True) if lines else [()] * len(schema)
    arrays = [lib.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return lib.Table.from_arrays(arrays, schema=schema)


def _row(line: str) -> tuple[object, ...]:
    """Return the row of a line; what it does not have is null."""
    figures = event_figures(line)
    return (*_NO_EVENT, line) if figures is None else (*figures, None)


def read_parquet(path: Path) -> Iterator[str]:
    """Yield the lines in a file that `write_parquet` wrote.

    Raises
    ------
    ConfigurationError
        The file can't be read, or pyarrow is not installed.
    CorruptDataError
        It is no such file.
    """
    lib, parquet = import_extra("pyarrow.lib", _PURPOSE), import_extra("pyarrow.parquet", _PURPOSE)
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["position", "time", "event", "line"]):
                times = batch.column("time").cast(lib.int64()).to_pylist()
                kept = (batch.column(name).to_pylist() for name in ("position", "event", "line"))
                for at_ms, position, event, line in zip(times, *kept, strict=True):
                    if event is None and line is None:
                        raise CorruptDataError(
                            f"{path}: is no Parquet file of a bandit: a row has neither event nor line"
                        )
                    yield line if event is None else event_line(position, at_ms, event)
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from error
    except (lib.ArrowException, KeyError) as error:
        raise CorruptDataError(f"{path}: is no Parquet file of a bandit: {error}") from error
