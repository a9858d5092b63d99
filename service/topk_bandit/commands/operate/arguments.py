"""The words and flags of the commands that ask a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.commands.connection import add_connection
from topk_bandit.commands.imports.arguments import add_columns
from topk_bandit.commands.names import add_bandit
from topk_bandit.commands.numbers import count, natural, number, position
from topk_bandit.domain.bandits import Aggregation
from topk_bandit.domain.stages import Stage

if TYPE_CHECKING:
    import argparse

    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - what add_subparsers returns

__all__ = ["add_changeable", "add_commands"]

_LOOKED_AT = frozenset(
    {
        "explain",
        "status",
        *("tenants list", "tenants stats"),
        *("bandits list", "bandits get", "bandits stats", "bandits history"),
        *("items list", "items get"),
        "replay",
    }
)
"""Words whose answer a program may want to read."""


def add_commands(commands: _Commands) -> None:
    """Add the commands, each with a `run` that returns an exit status."""
    explain = commands.add_parser(
        "explain",
        help="show why a slate was shown",
        description="Show why a slate was what it was: what each item and each pair added, and which slates came next.",
    )
    _with_bandit(explain)
    explain.add_argument("recommendation", metavar="ID", help="what Recommend returned")
    text = "an item of which to say why the slate does not show it; may be repeated"
    explain.add_argument("--absent", action="append", default=[], metavar="ITEM", help=text)
    _finish(explain, "explain")

    _finish(_word(commands, "status", "show how a worker and the store are, and how long calls took"), "status")
    _add_tenants(commands)
    _add_bandits(commands)
    _add_items(commands)
    _add_events(commands)
    _add_fork(commands)
    _add_backup(commands)
    replay = commands.add_parser(
        "replay",
        help="fold a bandit's log again, and compare it with the model that serves",
        description="Have the service fold a bandit's log again, as far back as it goes, and compare what it comes to "
        "with the model that serves.",
    )
    _with_bandit(replay).add_argument("--verify", action="store_true", help="exit 1 if they differ")
    _finish(replay, "replay")


def _add_events(commands: _Commands) -> None:
    words = _words(commands, "events", "export a bandit's log, import it, follow it, or pass over a bad event")
    export = _with_bandit(_word(words, "export", "write a bandit down, one JSON event a line or as Parquet"))
    where = export.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, metavar="FILE", help="where to write (default: standard output)")
    where.add_argument("--parquet", type=Path, metavar="FILE", help="write Parquet there, a row an event")
    tail = _with_bandit(_word(words, "tail", "print events as they come, until Ctrl-C"))
    tail.add_argument("--count", type=count, metavar="COUNT", help="end after so many")
    text = "events from there on, and nothing else: import takes it only without (default: all that import needs)"
    export.add_argument("--from", dest="first", type=position, metavar="POSITION", help=text)
    text = "first event (default: the first event to come)"
    tail.add_argument("--from", dest="first", type=position, metavar="POSITION", help=text)
    _finish(export, "events export")
    brought = _word(words, "import", "make a bandit of what export wrote; go on where an import of the file stands")
    brought.add_argument("file", type=Path, metavar="FILE", help="JSON Lines, or Parquet if it ends in .parquet")
    brought.add_argument("--as", dest="bandit", metavar="TENANT/BANDIT", help="its name (default: as it was exported)")
    _finish(brought, "events import")
    _finish(tail, "events tail")
    skip = _with_bandit(_word(words, "skip", "pass over the event before which a learner stands, for good"))
    skip.add_argument("position", type=position, metavar="POSITION", help="where it stands in the log")
    skip.add_argument("--reason", required=True, metavar="TEXT", help="why; it is kept in the log")
    skip.add_argument("--yes", action="store_true", help="do it; without it nothing is passed over")
    _finish(skip, "events skip")


def _add_fork(commands: _Commands) -> None:
    fork = commands.add_parser(
        "fork",
        help="replay a bandit's log under other settings into a new bandit",
        description="Replay a bandit's log, from its first event on, into a new bandit of the same tenant: the slates "
        "that were shown, and what they earned. --item-capacity, --half-life and --default-reward hold from event 1 "
        "on, and other settings from the log's end.",
    )
    fork.add_argument("source", metavar="SOURCE", help="the bandit whose log it is, as TENANT/BANDIT")
    fork.add_argument("bandit", metavar="NEW", help="the bandit to make, as TENANT/BANDIT")
    fork.add_argument("--to", dest="last", type=position, metavar="POSITION", help="last event (default: the newest)")
    text = "go on with a fork that was stopped, of the same bandits and settings: what its first line said"
    fork.add_argument("--resume", metavar="ID", help=text)
    fork.add_argument("--item-capacity", type=count, metavar="N", help="how many items there may be, more than before")
    add_changeable(fork)
    _finish(fork, "fork")


def _add_backup(commands: _Commands) -> None:
    backup = _word(commands, "backup", "write all bandits and studies of a service to a folder, a file each")
    backup.add_argument("folder", type=Path, metavar="DIR", help="where to write; new, or empty")
    backup.add_argument("--tenant", metavar="TENANT", help="only this tenant's (default: everybody's)")
    _finish(backup, "backup")
    restore = _word(commands, "restore", "make the bandits and studies in a folder that backup wrote")
    restore.add_argument("folder", type=Path, metavar="DIR", help="where they are")
    restore.add_argument(
        "--existing",
        choices=("refuse", "skip", "replace"),
        default="refuse",
        help="what to do if one of them exists: make none at all, leave it and make the others, or delete it first "
        "(default: refuse)",
    )
    _finish(restore, "restore")


def _add_tenants(commands: _Commands) -> None:
    words = _words(commands, "tenants", "list tenants, and show what they use")
    _finish(_word(words, "list", "list the tenants that have bandits or studies"), "tenants list")
    stats = _word(words, "stats", "show what a tenant uses")
    stats.add_argument("tenant", metavar="TENANT", help="its id")
    _finish(stats, "tenants stats")


def _add_bandits(commands: _Commands) -> None:
    words = _words(
        commands, "bandits", "list bandits at a glance, create one, look at one, change, reset or delete one"
    )
    listed = _word(words, "list", "list bandits with their state at a glance")
    listed.add_argument("tenant", nargs="?", metavar="TENANT", help="whose (default: everybody's)")
    listed.add_argument("--containing", default="", metavar="TEXT", help="only those whose TENANT/BANDIT contains it")
    _finish(listed, "bandits list")
    _add_create(words)
    _add_update(words)
    for word, text in (("get", "show a bandit's settings"), ("stats", "show where a bandit stands")):
        _finish(_with_bandit(_word(words, word, text)), f"bandits {word}")
    history = _with_bandit(_word(words, "history", "show how a bandit did over its life"))
    history.add_argument("--last", type=count, default=24, metavar="COUNT", help="so many intervals (default: 24)")
    _finish(history, "bandits history")
    report = _with_bandit(
        _word(words, "report", "write what a bandit is worth, learned and costs, as Markdown or HTML")
    )
    report.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts there, not Markdown here")
    _finish(report, "bandits report")
    delete = _with_bandit(_word(words, "delete", "delete a bandit with all that it learned, for good"))
    delete.add_argument("--yes", action="store_true", help="do it; without it nothing is deleted")
    _finish(delete, "bandits delete")
    reset = _with_bandit(_word(words, "reset", "have a bandit forget all that it learned from rewards, for good"))
    reset.add_argument("--yes", action="store_true", help="do it; without it nothing is forgotten")
    _finish(reset, "bandits reset")


def _add_create(words: _Commands) -> None:
    create = _with_bandit(_word(words, "create", "make a bandit; an equal one that is there is left as it is"))
    create.add_argument("--slate-size", type=count, required=True, metavar="K", help="how many items a slate has")
    create.add_argument("--item-capacity", type=count, required=True, metavar="N", help="how many items there may be")
    create.add_argument("--context-dimension", type=count, metavar="D", help="how many numbers a request's context has")
    add_changeable(create)
    _add_prior(create)
    _finish(create, "bandits create")


def _add_update(words: _Commands) -> None:
    update = _with_bandit(_word(words, "update", "change settings of a bandit; what it learned stays"))
    update.add_argument("--item-capacity", type=count, metavar="N", help="how many items there may be, more than now")
    add_changeable(update)
    _add_prior(update)
    _finish(update, "bandits update")


def _add_prior(command: argparse.ArgumentParser) -> None:
    """Add the flag of a study: a fork has none, since its log has the utilities that its bandit began with."""
    command.add_argument("--prior-study", metavar="STUDY", help="the study that it starts from")


def add_changeable(command: argparse.ArgumentParser) -> None:
    """Add a flag for each setting that can be changed later."""
    for flag, text in (
        ("--context-schema", "the features that requests have"),
        ("--item-schema", "those of items"),
    ):
        command.add_argument(flag, type=Path, metavar="FILE", help=f"{text}: a FeatureSchema as JSON")
    for flag, text in (
        ("--reward-wait", "how long a reward may come"),
        ("--provisional-after", "when the reward so far is first learned, before the wait ends"),
        ("--half-life", "when a reward counts half"),
    ):
        command.add_argument(flag, type=number, metavar="SECONDS", help=text)
    command.add_argument("--default-reward", type=number, metavar="VALUE", help="what a slate without a reward counts")
    text = "what an item counts that no reward of its slate names"
    command.add_argument("--default-item-value", type=number, metavar="VALUE", help=text)
    command.add_argument(
        "--reward-range",
        metavar="LOW:HIGH[,clamp][,trusted]",
        help="the rewards that are taken: clamp learns others as the nearest end, trusted learns rare ones at once",
    )
    command.add_argument("--reward-aggregation", choices=[*Aggregation], help="what several rewards count")
    command.add_argument("--stage", choices=[*Stage], help="whose slates are shown, and whether it learns")
    text = "share of requests that get the baseline slate, to compare with"
    command.add_argument("--control-share", type=number, metavar="P", help=text)
    text = "goes in shadow once it earns less than the control group by more than this share"
    command.add_argument("--guardrail-margin", type=number, metavar="SHARE", help=text)
    text = "shows the baseline slate where all that was shown could earn less than the baseline by more than this share"
    command.add_argument("--conservative-share", type=number, metavar="SHARE", help=text)
    command.add_argument("--uniform-share", type=number, metavar="P", help="share of slates drawn from all")
    command.add_argument(
        "--near-share", type=number, metavar="P", help="share of slates drawn from those near the best"
    )
    text = "both shares fall once so many rewards are learned; 0: never"
    command.add_argument("--shares-fall-after", type=natural, metavar="N", help=text)
    text = "a slate counts only once it is said to have been shown"
    command.add_argument("--requires-activation", action="store_true", default=None, help=text)
    text = "what each slate keeps: the rules of a Bandit as JSON"
    command.add_argument("--rules", type=Path, metavar="FILE", help=text)
    text = "about how many slates a second are learned from at most"
    command.add_argument("--learned-per-second", type=count, metavar="N", help=text)
    command.add_argument("--durability", metavar="CLASS", help="memory, fsync or replicated:N")


def _add_items(commands: _Commands) -> None:
    words = _words(commands, "items", "list a bandit's items, load a catalogue, add some, look at one, or retire some")
    _finish(_with_bandit(_word(words, "list", "list a bandit's items")), "items list")
    create = _with_bandit(_word(words, "create", "add items without features, or put them in the place of others"))
    create.add_argument("items", nargs="+", metavar="ITEM", help="their ids")
    _finish(create, "items create")
    load = _with_bandit(_word(words, "load", "show what a file changes in a catalogue, and change it"))
    load.add_argument("file", type=Path, metavar="FILE", help="a row an item; ends in .jsonl, .csv, .tsv or .parquet")
    text = "change only this of items that are there: available, features, or features.NAME; can be given again"
    load.add_argument(
        "--mask", action="append", default=[], metavar="PART", help=f"{text} (default: what has a column)"
    )
    add_columns(load)
    load.add_argument("--retire-missing", action="store_true", help="retire items that the file does not have")
    load.add_argument("--yes", action="store_true", help="do retire them; without it the file is refused")
    load.add_argument("--dry-run", action="store_true", help="show what would change, and send nothing")
    _finish(load, "items load")
    get = _with_bandit(_word(words, "get", "show an item"))
    get.add_argument("item", metavar="ITEM", help="its id")
    _finish(get, "items get")
    delete = _with_bandit(_word(words, "delete", "retire items: they are in no slate any more, for good"))
    delete.add_argument("items", nargs="+", metavar="ITEM", help="their ids")
    delete.add_argument("--yes", action="store_true", help="do it; without it nothing is retired")
    _finish(delete, "items delete")


def _words(commands: _Commands, name: str, text: str) -> _Commands:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(required=True, metavar="WORD", title="words")


def _word(words: _Commands, name: str, text: str) -> argparse.ArgumentParser:
    return words.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def _with_bandit(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add_bandit(parser)
    return parser


def _finish(parser: argparse.ArgumentParser, word: str) -> None:
    if word in _LOOKED_AT:
        parser.add_argument("--json", action="store_true", help="print all that is answered as JSON, for programs")
    add_connection(parser)
    parser.set_defaults(run=_run_command, word=word)


def _run_command(given: argparse.Namespace) -> int:
    from topk_bandit.commands.operate import command  # noqa: PLC0415 - serve and --help need not wait for it

    return command.run(given)
