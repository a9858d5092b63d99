"""Lines of the log on a real pipe that somebody reads, reads late, or does not read."""

from __future__ import annotations

import array
import fcntl
import logging
import os
import re
import subprocess
import sys
import termios
import threading
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from tests.process.scripts import run_script
from tests.waiting import PATIENCE, until

from topk_bandit.process import log_writer
from topk_bandit.process.log_writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

MOST_PIPE_BYTES = 65_536
LEAST_PIPE_BYTES = 60_000
"""What a pipe that nobody reads takes at least; how much more depends on how the lines share its pages."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a flush take as long as it takes."""
    monkeypatch.setattr(log_writer, "FLUSH_SECONDS", PATIENCE)


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "r") as reader, os.fdopen(writing, "w") as writer:
        yield reader, writer


def logger_to(stream: TextIO) -> tuple[logging.Logger, LogWriter]:
    logger, writer = logging.Logger("test"), LogWriter(stream)  # noqa: LOG001 - of this test alone
    logger.addHandler(writer)
    return logger, writer


def test_lines_come_in_order_and_whole(pipe: tuple[TextIO, TextIO]) -> None:
    logger, writer = logger_to(pipe[1])
    for number in range(100):
        logger.info("line %d \udc80 \N{SNOWMAN}", number)
    writer.flush()
    read = [pipe[0].readline() for _ in range(100)]
    assert read == [f"line {number} \\udc80 \N{SNOWMAN}\n" for number in range(100)]


def test_who_logs_is_not_held_up_and_losses_are_logged(
    pipe: tuple[TextIO, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "MOST_WAITING_BYTES", 100_000)
    monkeypatch.setattr(log_writer, "FLUSH_SECONDS", 0.05)
    logger, writer = logger_to(pipe[1])
    line = "x" * 999
    for _ in range(1000):
        logger.info(line)
    writer.flush()  # of a million bytes, of which a pipe takes 65,536
    written = lost = 0
    while written + lost < 1000:
        read = pipe[0].readline()
        loss = re.fullmatch(r"(\d+) records are lost: nobody read what was logged\n", read)
        assert loss or read == f"{line}\n"
        written, lost = written + (loss is None), lost + int(loss[1] if loss else 0)
    assert lost >= 1000 - (100_000 + MOST_PIPE_BYTES) // 1000
    logger.info("and on")
    assert pipe[0].readline() == "and on\n"


def test_a_pipe_that_does_not_wait_is_waited_for(pipe: tuple[TextIO, TextIO]) -> None:
    os.set_blocking(pipe[1].fileno(), False)
    logger, _ = logger_to(pipe[1])
    for _ in range(200):
        logger.info("y" * 999)
    until(lambda: unread_bytes(pipe[0]) >= LEAST_PIPE_BYTES, what="it is full")
    assert [len(pipe[0].readline()) for _ in range(200)] == [1000] * 200


def unread_bytes(reader: TextIO) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(reader.fileno(), termios.FIONREAD, size)
    return size[0]


def test_a_reader_that_is_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        logger, writer = logger_to(stream)
        logger.info("to nobody")
        writer.flush()


def test_a_stream_that_was_closed_is_no_error(pipe: tuple[TextIO, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    logger, writer = logger_to(pipe[1])
    logger.info("to the pipe")
    writer.flush()
    pipe[1].close()
    logger.info("to nobody")
    logger.info("nor this")
    writer.flush()
    assert failures == []


def test_what_is_no_file_is_written_to() -> None:
    stream = StringIO()
    logger, writer = logger_to(stream)
    logger.info("here")
    writer.flush()
    assert stream.getvalue() == "here\n"


def test_a_record_that_can_not_be_formatted_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    logger, _ = logger_to(StringIO())
    logger.info("%d", "no number")
    assert "--- Logging error ---" in capsys.readouterr().err


def test_threads_share_it(pipe: tuple[TextIO, TextIO]) -> None:
    logger, _ = logger_to(pipe[1])
    threads = [threading.Thread(target=lambda: [logger.info("z") for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [pipe[0].readline() for _ in range(400)] == ["z\n"] * 400


COLLECTED = """
import faulthandler, gc, logging, sys, threading
from topk_bandit.process.logs import configure

class Circle:
    def __init__(self):
        self.me = self
    def __del__(self):
        logging.info("collected")

def log():
    for number in range(3000):
        Circle()
        logging.info("number %d", number)

faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True)
configure("text", level="INFO")
gc.set_threshold(5)
threads = [threading.Thread(target=log) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
"""


def test_garbage_may_log_wherever_it_is_collected() -> None:
    run = run_script(COLLECTED, str(PATIENCE))
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stderr.count("number 2999") == 3
    assert run.stderr.count("collected") == 9000


def test_the_last_lines_of_a_process_are_written() -> None:
    script = "import logging; from topk_bandit.process.logs import configure; configure('text', level='INFO')\n"
    script += "for number in range(500): logging.info('number %d', number)\n1 / 0"
    run = run_script(script)
    assert [line for line in run.stderr.splitlines() if "number 499" in line]
    assert "ZeroDivisionError" in run.stderr


def test_a_process_ends_though_nobody_reads() -> None:
    script = "import logging; from topk_bandit.process.logs import configure; configure('text', level='INFO')\n"
    script += "for number in range(500): logging.info('x' * 999)"
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        assert process.wait(PATIENCE) == 0
