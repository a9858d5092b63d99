"""The command `topk-bandit`."""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import signal
import sys
import threading
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from topk_bandit.client import ClientError
from topk_bandit.commands import challenge, completion, config, experiment, holdout, keys, personalizer, store
from topk_bandit.commands.imports import arguments as imports
from topk_bandit.commands.log import arguments as log
from topk_bandit.commands.numbers import count, natural
from topk_bandit.commands.operate.arguments import add_commands
from topk_bandit.commands.study import arguments as study
from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.process import logs, settings
from topk_bandit.process.compiled_code import place_compiled_code
from topk_bandit.process.listeners import check_listeners, find_exposed_listeners
from topk_bandit.process.supervisor import Supervisor
from topk_bandit.process.threads import use_one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from _typeshed import SupportsWrite

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - the type has no other name

    class _Words(Protocol):
        """A module that has a command."""

        DESCRIPTION: str

        def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...


__all__ = ["main"]

_log = logging.getLogger(__name__)

# The attributes of a running service that say where it listens.
_LISTENERS = ("address", "http_address", "console_address")

_COMPLETES = "_ARGCOMPLETE"
"""The variable by which a shell asks for completions."""

DESCRIPTION = """\
An online recommender that learns which ranked slate of k items to show, from one number per slate.

import, and the commands from explain on, ask a service that runs, as --address names it.
"""


FINALIZE_DESCRIPTION = """\
End the time in which the version before can take over: from now on data are written as this version has them, which the
one before can't read. Refused, and nothing changed, while a worker of the version before runs. The only way back is a
backup from before.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the process's exit status: 0 when all went well, 1 when not, 2 for a wrong call."""
    use_one_thread(os.environ)
    _write_any_text()
    parser = _parser()
    if _COMPLETES in os.environ:
        completion.answer(parser)
    try:
        status = _run(parser, arguments)
    except (TopkBanditError, ClientError) as error:
        for handler in logging.getLogger().handlers:
            handler.flush()  # what led to it is read first
        print(f"topk-bandit: {error}", file=sys.stderr)  # noqa: T201 - what a person at a terminal reads
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITTEN:
            raise
        # What Python still writes when it ends goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # nobody reads on
            return 141
        print(f"topk-bandit: the output can't be written: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    return status


def _run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Return a command's status once its output is written; `--help` and `--version` end the process."""
    try:
        given = parser.parse_args(arguments)
    except SystemExit:
        _flush()
        raise
    place_compiled_code(os.environ)
    status = int(given.run(given))
    _flush()
    return status


def _flush() -> None:
    if sys.stdout is not None:  # it may have been closed
        sys.stdout.flush()


_UNWRITTEN = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What goes wrong when standard output is written; files that a command names have errors of their own."""


def _write_any_text() -> None:
    """Let texts be written to a terminal that has not all their letters."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class _Parser(argparse.ArgumentParser):
    """One whose help is an error where it can't be written, and not lost."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        (sys.stdout if file is None else file).write(self.format_help())


@cache  # a program that runs many commands, as the tests do, would spend most of its time here
def _parser() -> argparse.ArgumentParser:
    make: Callable[..., argparse.ArgumentParser] = _Parser
    parser = make(prog="topk-bandit", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"topk-bandit {version('topk-bandit')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    _add_demo(commands)
    serve = commands.add_parser(
        "serve",
        help="run the service; without --redis-url it keeps its data in an embedded store",
        description="Run the service until SIGTERM or Ctrl-C.",
    )
    settings.add_arguments(serve)
    serve.set_defaults(run=_serve)
    _add_words(commands, "keys", keys, "make, list and revoke the keys of those who may call")
    text = "teach a bandit from slates that were shown elsewhere, in JSON Lines, CSV or Parquet"
    _add_words(commands, "import", imports, text)
    _add_words(commands, "study", study, "ask people a few well-chosen questions, and learn what they prefer")
    text = "run one of the papers' experiments again, on its data or on yours"
    _add_words(commands, "experiment", experiment, text)
    doctor = commands.add_parser(
        "doctor",
        help="check what the service stands on, with the settings that serve would use",
        description="Check versions, store settings, the clock and a sample decision; exit 1 if anything is wrong.",
    )
    settings.add_arguments(doctor)
    doctor.set_defaults(run=_doctor)
    text = "end the time in which the version before can take over"
    ending = commands.add_parser("finalize-upgrade", help=text, description=FINALIZE_DESCRIPTION)
    settings.add_arguments(ending)
    ending.set_defaults(run=_finalize)
    text = "print the settings that serve would use, and where each came from"
    config.add_arguments(commands.add_parser("config", help=text, description=f"{text[0].upper()}{text[1:]}."))
    _add_words(commands, "store", store, "repair the log of an embedded store that does not start")
    text = "write down a bandit's log, replay it, compare two, and evaluate other policies on it"
    _add_words(commands, "log", log, text)
    _add_words(commands, "holdout", holdout, "plan a control group: traffic, share and lift in, days out")
    text = "print what a shell reads to complete these words and their flags"
    _add_words(commands, "completion", completion, text)
    add_commands(commands)
    text = "ask which settings would earn most, and give them to a bandit that runs"
    _add_words(commands, "challenge", challenge, text)
    _add_words(commands, "personalizer", personalizer, "answer the calls of Azure Personalizer's clients")
    return parser


def _add_demo(commands: _Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="watch it learn in a simulated shop, in under a minute; nothing is kept",
        description="Start the service on an embedded store in a folder of its own, run a simulated shop against it "
        "over gRPC, and show what it learns beside a policy that shows random slates.",
    )
    demo.add_argument("--rounds", type=count, default=600, metavar="COUNT", help="requests to make (default: 600)")
    demo.add_argument("--seed", type=natural, default=0, metavar="NUMBER", help="which shop it is (default: 0)")
    demo.set_defaults(run=_demo)


def _add_words(commands: _Commands, name: str, words: _Words, text: str) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    words.add_arguments(commands.add_parser(name, help=text, description=words.DESCRIPTION, formatter_class=raw))


def _serve(given: argparse.Namespace) -> int:
    chosen = settings.load(given, os.environ)
    check_listeners(chosen)
    logs.configure(chosen.log_format, level=chosen.log_level)
    stop_requested = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop_requested.set())
    _log.info("starting", extra={"settings": chosen.redact()})
    for problem in find_exposed_listeners(chosen):
        _log.warning("%s; it is served all the same, since insecure is said", problem)
    with Supervisor(chosen, stop_requested=stop_requested) as service:
        if service.ready:
            where = {name: getattr(service, name) for name in _LISTENERS}
            _log.info("serving", extra={**where, "metrics_port": service.metrics_port})
        while not stop_requested.is_set():
            service.watch(0.5)
        _log.info("draining")
    _log.info("stopped")
    return 0


def _doctor(given: argparse.Namespace) -> int:
    from topk_bandit.commands.doctor import examine  # noqa: PLC0415 - serve and --help need not wait for it

    return examine(settings.load(given, os.environ))


def _finalize(given: argparse.Namespace) -> int:
    from topk_bandit.commands.finalize import finalize  # noqa: PLC0415 - serve and --help need not wait for it

    return finalize(settings.load(given, os.environ))


def _demo(given: argparse.Namespace) -> int:
    from topk_bandit.commands.demo import show  # noqa: PLC0415 - serve and --help need not wait for it

    return show(rounds=given.rounds, seed=given.seed)


if __name__ == "__main__":
    sys.exit(main())
