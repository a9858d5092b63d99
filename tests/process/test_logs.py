"""Logs as a collector and a terminal read them."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from io import StringIO

import pytest

from topk_bandit.process.logs import JsonFormatter, TextFormatter


def log_line(formatter: logging.Formatter, message: str, *arguments: object, **extra: object) -> str:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("topk_bandit.test")
    logger.addHandler(handler)
    try:
        logger.warning(message, *arguments, extra=extra)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


def test_a_record_is_one_line_of_strict_json() -> None:
    line = log_line(
        JsonFormatter(), "two\nlines: %s", "é", bandit="b", ratio=float("nan"), tried={"set": (1, b"x")}, time=9
    )
    assert line.count("\n") == 1

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    fields = json.loads(line, parse_constant=refuse)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("time"))
    assert list(fields) == ["level", "logger", "message", "bandit", "ratio", "tried"]
    assert fields == {
        "level": "WARNING",
        "logger": "topk_bandit.test",
        "message": "two\nlines: é",
        "bandit": "b",
        "ratio": "nan",
        "tried": {"set": [1, "b'x'"]},
    }


def test_an_exception_is_a_field() -> None:
    try:
        int("broken")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", None, sys.exc_info())
    fields = json.loads(JsonFormatter().format(record))
    assert fields["exception"].endswith("literal for int() with base 10: 'broken'")
    assert TextFormatter().format(record).endswith("literal for int() with base 10: 'broken'")


def test_text_for_a_terminal_cannot_forge_lines() -> None:
    line = log_line(TextFormatter(), "a\n2026 ERROR \x1b[31m%s", "b\r", bandit="c")
    assert line.count("\n") == 1
    assert line.endswith("Z WARNING topk_bandit.test: a\\n2026 ERROR \\x1b[31mb\\r bandit=c\n")


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_configured_process_logs_and_warns_on_standard_error_only(style: str) -> None:
    script = (
        "import logging, sys, warnings\n"
        "from topk_bandit.process.logs import configure\n"
        "configure('json', level='INFO')\n"
        "configure(sys.argv[1], level='INFO')\n"
        "logging.getLogger('a').debug('hidden')\n"
        "logging.getLogger('a').info('shown', extra={'n': 1})\n"
        "warnings.warn('careful')\n"
    )
    run = subprocess.run([sys.executable, "-c", script, style], capture_output=True, text=True, check=True)
    lines = run.stderr.splitlines()
    assert run.stdout == ""
    assert len(lines) == 2
    if style == "json":
        assert [json.loads(line)["logger"] for line in lines] == ["a", "py.warnings"]
    else:
        assert lines[0].endswith("INFO    a: shown n=1")
