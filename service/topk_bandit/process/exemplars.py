"""Exemplars of the workers' metrics: for a bucket or a count, one call that was counted there.

The library keeps none where several processes count into files. Each worker has a file of slots, one for each of its
series that has an exemplar; the supervisor reads them all and takes the newest of each series. A slot carries a
checksum, so that one which is read while it is written counts as empty.
"""

from __future__ import annotations

import json
import mmap
import threading
import zlib
from typing import TYPE_CHECKING, Any

from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from prometheus_client import Metric

__all__ = ["FILE_BYTES", "ExemplarFile", "WithExemplars", "keeping_exemplars", "read_exemplars"]

_SLOT_BYTES, _SLOTS = 512, 128
FILE_BYTES = _SLOT_BYTES * _SLOTS

_Series = tuple[str, frozenset[tuple[str, str]]]


class ExemplarFile:
    """Where a worker keeps the newest exemplar of each of its series; of series beyond 128 it keeps none.

    Parameters
    ----------
    path
        A file of `FILE_BYTES`, or none yet; what it has stays until it is replaced.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(FILE_BYTES)
            self._bytes = mmap.mmap(file.fileno(), FILE_BYTES)
        self._slots: dict[_Series, int] = {}
        self._lock = threading.Lock()

    def put(self, name: str, labels: Mapping[str, str], exemplar: Exemplar) -> None:
        """Keep the exemplar of a series in place of the one before."""
        text = json.dumps([name, dict(labels), exemplar.labels, exemplar.value, exemplar.timestamp]).encode()
        record = b"%08x%b" % (zlib.crc32(text), text)
        with self._lock:
            slot = self._slots.setdefault((name, frozenset(labels.items())), len(self._slots))
            if slot < _SLOTS and len(record) <= _SLOT_BYTES:
                begin = slot * _SLOT_BYTES
                self._bytes[begin : begin + _SLOT_BYTES] = record.ljust(_SLOT_BYTES, b"\0")


def read_exemplars(paths: Iterable[Path]) -> dict[_Series, Exemplar]:
    """Return the newest exemplar of each series that any of the files has."""
    newest: dict[_Series, Exemplar] = {}
    for path in paths:
        for series, exemplar in _records(path.read_bytes()):
            known = newest.get(series)
            if known is None or _time_of(known) < _time_of(exemplar):
                newest[series] = exemplar
    return newest


def _records(content: bytes) -> Iterator[tuple[_Series, Exemplar]]:
    for begin in range(0, len(content), _SLOT_BYTES):
        record = content[begin : begin + _SLOT_BYTES].rstrip(b"\0")
        if record and record[:8] == b"%08x" % zlib.crc32(record[8:]):
            name, labels, *exemplar = json.loads(record[8:])
            yield (name, frozenset(labels.items())), Exemplar(*exemplar)


def _time_of(exemplar: Exemplar) -> float:
    return float(exemplar.timestamp or 0.0)


def keeping_exemplars(value_class: Any, file: ExemplarFile) -> Any:  # noqa: ANN401 - the library's own has no type
    """Return the library's class of values in files, but for what it leaves out: exemplars."""

    class Value(value_class):  # type: ignore[misc]
        def __init__(
            self,
            kind: str,
            metric: str,
            name: str,
            labels: tuple[str, ...],
            values: tuple[str, ...],
            *rest: object,
            **more: object,
        ) -> None:
            super().__init__(kind, metric, name, labels, values, *rest, **more)
            self._series_name, self._series_labels = name, dict(zip(labels, values, strict=True))

        def set_exemplar(self, exemplar: Exemplar) -> None:
            file.put(self._series_name, self._series_labels, exemplar)

    return Value


class WithExemplars(Collector):
    """What a collector collects, with the exemplars of its series."""

    def __init__(self, collector: Collector, exemplars: Mapping[_Series, Exemplar]) -> None:
        self._collector = collector
        self._exemplars = exemplars
        self._names = {name for name, _ in exemplars}

    def collect(self) -> Iterator[Metric]:
        """Yield each metric as it was collected, its samples with their exemplars."""
        for metric in self._collector.collect():
            metric.samples = [
                sample._replace(exemplar=self._exemplars.get((sample.name, frozenset(sample.labels.items()))))
                if sample.name in self._names
                else sample
                for sample in metric.samples
            ]
            yield metric
