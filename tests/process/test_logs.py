"""Logs as a collector and a terminal read them."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from io import StringIO

import pytest
from tests.long_forms import LONG
from tests.process.scripts import run_script

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
    run = run_script(script, style)
    lines = run.stderr.splitlines()
    assert run.stdout == ""
    assert len(lines) == 2
    if style == "json":
        assert [json.loads(line)["logger"] for line in lines] == ["a", "py.warnings"]
    else:
        assert lines[0].endswith("INFO    a: shown n=1")


SERVING = """
import logging, sys
from concurrent.futures import wait
from topk_bandit.domain.calls import CURRENT_CALL, Call, SpanIds
from topk_bandit.process.call_threads import CallThreads
from topk_bandit.process.logs import configure

configure(sys.argv[1], level="INFO")
log = logging.getLogger("a")
with CallThreads(2) as threads:
    log.info("before")
    token = CURRENT_CALL.set(Call("r-1", SpanIds("t" * 32, "s" * 16, sampled=False)))
    log.info("in the call", extra={"bandit": "b"})
    wait([threads.submit(log.info, "%s, in a thread", "in the call")])
    CURRENT_CALL.reset(token)
    wait([threads.submit(log.info, "after, in a thread")])
    log.info("after")
"""


@pytest.mark.parametrize("style", ["json", "text"])
def test_what_is_logged_while_a_call_is_served_has_its_ids(style: str) -> None:
    run = run_script(SERVING, style)
    ids = {"request_id": "r-1", "trace_id": "t" * 32, "span_id": "s" * 16}
    before, within, thread, thread_after, after = run.stderr.splitlines()
    if style == "text":
        assert within.endswith("in the call bandit=b " + " ".join(f"{name}={text}" for name, text in ids.items()))
        assert not any("r-1" in line for line in (before, thread_after, after))
        return
    assert {"bandit": "b", **ids}.items() <= json.loads(within).items()
    assert ids.items() <= json.loads(thread).items()
    for line in (before, thread_after, after):
        assert list(json.loads(line)) == ["time", "level", "logger", "message"]


CALLER = """
import os, sys, time, grpc
call = grpc.insecure_channel(sys.argv[1]).unary_unary("/service/call")
call(b"")
under_way = [call.future(b"") for _ in range(5)]
time.sleep(float(sys.argv[2]))
os._exit(0)
"""
SERVER = """
import asyncio, logging, random, sys
import grpc
from topk_bandit.process.logs import configure

records = []
logging.getLogger("grpc._cython.cygrpc").addFilter(lambda record: records.append(record) or True)
configure("text", level="INFO")

async def answer(request, context):
    return b"x" * 3_900_000

async def main():
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("service", {"call": method})])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    for _ in range(600):
        wait = str(random.uniform(0, 0.02))
        caller = await asyncio.create_subprocess_exec(sys.executable, "-c", sys.argv[1], address, wait)
        await caller.wait()
        await asyncio.sleep(0.05)
        if records:
            break
    await server.stop(None)

asyncio.run(main())
print(records[0].getMessage())
"""


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.skipif(not LONG, reason="one death in fifty comes at the right moment: make faults waits for it")
def test_a_caller_that_dies_while_it_is_answered_is_no_error() -> None:
    command = [sys.executable, "-c", SERVER, CALLER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    assert done.stdout.startswith("ExecuteBatchError raised")
    assert not done.stderr


def test_what_grpc_says_of_such_a_caller_is_left_out() -> None:
    said = "ExecuteBatchError raised in core by servicer method"
    script = f"""
from topk_bandit.process.logs import configure
import logging
configure("text", level="DEBUG")
log = logging.getLogger("grpc._cython.cygrpc")
log.error({said!r})
log.error("another")
"""
    (line,) = run_script(script).stderr.splitlines()
    assert line.endswith("another")
