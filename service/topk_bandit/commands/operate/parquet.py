"""A bandit's log as a Parquet file: a row an event, with the figures that are asked for most as columns.

The event itself is a column too, as JSON, so that nothing is lost.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.optional import needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from topk_bandit.client import ExportedEvent

__all__ = ["write_parquet"]

_ROWS_AT_ONCE = 10_000
_PURPOSE = "writing Parquet"


def write_parquet(path: Path, events: Iterable[ExportedEvent]) -> None:
    """Write events to a file.

    Raises
    ------
    ConfigurationError
        The file can't be written, or pyarrow is not installed.
    """
    lib, parquet = needed("pyarrow.lib", _PURPOSE), needed("pyarrow.parquet", _PURPOSE)
    schema = _schema(lib)
    rows: list[Mapping[str, object]] = []
    try:
        with parquet.ParquetWriter(path, schema) as writer:
            for event in events:
                rows.append(_row(event))
                if len(rows) == _ROWS_AT_ONCE:
                    writer.write_table(lib.Table.from_pylist(rows, schema))
                    rows.clear()
            writer.write_table(lib.Table.from_pylist(rows, schema))
    except OSError as error:
        raise ConfigurationError(f"{path} can't be written: {error.strerror or error}") from error


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
        "event": lib.string(),
    }
    return lib.schema(list(columns.items()))


def _row(event: ExportedEvent) -> Mapping[str, object]:
    """Return the row of an event; what it does not have is null."""
    told = json.loads(event.event_json)
    slate = told.get("recommendation", {})
    return {
        "position": event.position,
        "time": event.at_ms,
        "type": told["type"],
        "recommendation_id": slate.get("recommendation_id", told.get("recommendation_id")),
        **{name: slate.get(name) for name in ("slate", "propensity", "position_propensities", "explored")},
        "value": told.get("value", told.get("default_reward")),
        "event": event.event_json,
    }
