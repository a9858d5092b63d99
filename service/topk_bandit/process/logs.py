"""Logs on standard error: one JSON object per line for machines, or one line of text for a terminal.

A record is one line, whatever is in it: control characters are escaped, and in text only an exception takes lines of
its own. A value that JSON does not have is written as text. What is logged while a call is served has the call's ids.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from topk_bandit.domain.calls import CURRENT_CALL
from topk_bandit.process.log_writer import LogWriter

__all__ = ["JsonFormatter", "LogFormat", "TextFormatter", "configure"]

LogFormat: TypeAlias = Literal["json", "text"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    0x0A: "\\n",
    0x0D: "\\r",
    0x09: "\\t",
}


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    """Turn any value into one that JSON has; numbers that are not finite become text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(entry) for entry in value]
    return str(value)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: time (RFC 3339, UTC), level, logger, message, extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        fields = _extra(record) | {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        order = {"time": None, "level": None, "logger": None, "message": None}
        return json.dumps(_plain(order | fields))


class TextFormatter(logging.Formatter):
    """Writes a record as one line of text, with control characters escaped, and its exception below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line, without its end."""
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        return f"{_time(record)} {record.levelname:<7} {record.name}: {record.getMessage()}{extra}".translate(_CONTROL)


_GRPC_LOGGER = "grpc._cython.cygrpc"
# A header that is not UTF-8 is repeated, and a caller's secret may be in it; a caller that is gone when its answer is
# ready is an error with a traceback there, though nothing is wrong here.
_LEFT_OUT = ("Invalid encoding on", "ExecuteBatchError raised in core by servicer method")


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Return False for gRPC's records that would show a secret, or a failure where a caller only hung up."""
    return not str(record.msg).startswith(_LEFT_OUT)


def _add_call(record: logging.LogRecord) -> bool:
    """Give a record the ids of the call that is being served, if one is."""
    call = CURRENT_CALL.get()
    if call is not None:
        record.request_id = call.request_id
        record.trace_id, record.span_id, _ = call.span
    return True


def configure(style: LogFormat, *, level: str) -> None:
    """Send this process's warnings, and its records from `level` upwards, to standard error."""
    handler = LogWriter(sys.stderr)
    handler.addFilter(_add_call)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger(_GRPC_LOGGER).addFilter(_is_worth_telling)
    logging.captureWarnings(capture=True)
