"""The words and flags of `topk-bandit study`."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from topk_bandit.commands.connection import add_connection
from topk_bandit.commands.imports.arguments import add_check, add_columns
from topk_bandit.commands.names import add_study
from topk_bandit.commands.numbers import count, natural, real, whole
from topk_bandit.domain.studies import (
    DEFAULT_ANSWERS_EACH,
    LARGEST_STREAM_RATE,
    MAX_ANSWERS_EACH,
    MAX_BUDGET,
    MAX_LINK_DAYS,
    SMALLEST_STREAM_RATE,
    AnswerKind,
    PreferenceModel,
)
from topk_bandit.tables.published import PUBLISHED

__all__ = ["DESCRIPTION", "add_arguments"]

DESCRIPTION = """\
Ask people a few well-chosen questions about your items, and learn from their answers what they prefer.

  topk-bandit study ask    --items items.csv --kind ranking --size 3 --count 20 --out study
  topk-bandit study learn  --items items.csv --kind ranking --answers answers.csv --out study
  topk-bandit study run    does both: learns from the answers, and says what to ask next
  topk-bandit study import shop/taste answers.csv    teaches a study of a running service from past answers
  topk-bandit study link create shop/taste --most-answers 200    makes a link to a page where people answer

items.csv    item and a column of numbers for each feature; without features, each item is its own
queries.csv  query and features, likewise; optional: what the items are seen for, if tastes depend on it
lists.csv    one row a list to choose among: item_1, item_2, ..., and query if tastes depend on it; optional
answers.csv  one row an answer, as `study import` takes them: item_1, item_2, ... are the items, best first
"""

IMPORT = """\
Teach a study of a running service from answers to questions that it did not ask: one row each, in JSON Lines, CSV or
Parquet.

item_1, item_2, ...      the items that were shown, best first; or items, a list
place_1, place_2, ...    the items' places, the same for a tie, empty for those below all others; or places, a list
best_item, worst_item    the best item, the worst one, or both; the others are between them
declined                 skipped, or none_of_these: counted, and not learned from
chosen                   of a choice or pair the item that was chosen; without it the first one was
rating_1, rating_2, ...  of ratings those of the items; or ratings, a list; or item and rating, for one item a row
query                    what the items were seen for, in a study with queries
respondent               who answered, the same name in all rows of one person

In CSV the parts of a list are separated by |, or it is a list of JSON. A file of PrefLib (.soc, .soi, .toc, .toi) has
orders and how many people gave each. With --format nectar the items are the models that answered a prompt. With
--format trec-qrels or trec-run they are the documents of a query, by relevance or by score.

Other columns are passed over and named; one whose name is nearly that of a missing one is an error. The same file again
changes nothing, and an import that was interrupted goes on where it stopped.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words of `study` to a parser, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="WORD", title="words")
    for name, help_text in (
        ("run", "learn from the answers, and write what to ask next"),
        ("ask", "write which lists to ask people about"),
        ("learn", "learn utilities from answers"),
    ):
        word = words.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
        _add_common(word, answers=name != "ask", questions=name != "learn")
        word.set_defaults(run=_run_command, word=name)
    word = words.add_parser(
        "import",
        help="teach a study of a running service from answers that were given elsewhere",
        description=IMPORT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_import(word)
    help_text = "make, list and end links by which people answer the questions of a study of a running service"
    word = words.add_parser("link", help=help_text, description=f"{help_text.capitalize()}.")
    _add_links(word.add_subparsers(required=True, metavar="WORD", title="words"))


def _add_links(words: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, help_text in (
        ("create", "make a link, and print the address of its page, this once"),
        ("list", "list the links of a study, and what came through each"),
        ("revoke", "end a link for good"),
    ):
        word = words.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
        add_study(word)
        if name == "revoke":
            word.add_argument("link", metavar="LINK", help="its id, as `study link list` shows it")
        if name == "create":
            _add_link_settings(word)
        add_connection(word)
        word.set_defaults(run=_link, word=name)


def _add_link_settings(word: argparse.ArgumentParser) -> None:
    word.add_argument(
        "--most-answers", type=whole(1, MAX_BUDGET), required=True, metavar="COUNT", help="so many answers come at most"
    )
    word.add_argument(
        "--answers-each",
        type=whole(1, MAX_ANSWERS_EACH),
        default=DEFAULT_ANSWERS_EACH,
        metavar="COUNT",
        help=f"so many questions one person is asked (default: {DEFAULT_ANSWERS_EACH})",
    )
    word.add_argument(
        "--days", type=whole(1, MAX_LINK_DAYS), default=30, metavar="DAYS", help="when it ends (default: in 30 days)"
    )
    word.add_argument("--title", default="", metavar="TEXT", help="the page's heading")
    word.add_argument("--thanks", default="", metavar="TEXT", help="what is read at the end")
    for part, what in (("accent", "buttons"), ("background", "the page"), ("text", "texts")):
        word.add_argument(f"--{part}-color", default="", metavar="#RRGGBB", help=f"the color of {what}")
    word.add_argument(
        "--page",
        type=_page,
        default="http://127.0.0.1:50080",
        metavar="URL",
        help="where people reach --http-listen (default: http://127.0.0.1:50080)",
    )


def _page(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or "?" in text or "#" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as https://ask.example")
    return text


def _link(given: argparse.Namespace) -> int:
    from topk_bandit.commands.study import links  # noqa: PLC0415 - other commands need not wait for it

    return links.run(given)


def _add_import(word: argparse.ArgumentParser) -> None:
    add_study(word)
    endings = "ends in .jsonl, .csv, .tsv or .parquet, or as PrefLib has it"
    word.add_argument("file", type=Path, metavar="FILE", help=endings)
    add_connection(word)
    add_columns(word)
    _add_format(word)
    add_check(word)
    word.add_argument(
        "--import-id",
        metavar="ID",
        help="go on with this import, whose rows so far are passed over (default: one that the file's content gives)",
    )
    word.set_defaults(run=_import)


def _add_format(parser: argparse.ArgumentParser) -> None:
    help_text = "rankings as Nectar publishes them, or TREC's judgements or runs (default: what the ending says)"
    parser.add_argument("--format", choices=PUBLISHED, help=help_text)
    parser.add_argument("--depth", type=count, metavar="COUNT", help="with --format: take so many items of each list")


def _add_common(parser: argparse.ArgumentParser, *, answers: bool, questions: bool) -> None:
    parser.add_argument("--items", type=Path, required=True, metavar="FILE", help="items and their features")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="queries and their features")
    parser.add_argument(
        "--kind",
        type=AnswerKind,
        choices=list(AnswerKind),
        default=AnswerKind.RANKING,
        metavar="KIND",
        help="what people say about a list: ranking (default), choice, pair or ratings",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write; made if need be")
    if answers:
        parser.add_argument("--answers", type=Path, required=True, metavar="FILE", help="what people answered")
        add_columns(parser)
        _add_format(parser)
        parser.add_argument(
            "--model",
            type=PreferenceModel,
            choices=list(PreferenceModel),
            metavar="MODEL",
            help=f"how to learn: {', '.join(PreferenceModel)} (default: plackett_luce; ratings: least_squares)",
        )
        parser.add_argument(
            "--stream-rate",
            type=real(SMALLEST_STREAM_RATE, LARGEST_STREAM_RATE),
            metavar="RATE",
            help="how fast the steps of a stream_... model shrink (default: 0.1)",
        )
        parser.add_argument(
            "--compare",
            action="store_true",
            help="show how well each model predicts answers that it did not learn from",
        )
    if questions:
        parser.add_argument(
            "--lists",
            type=Path,
            metavar="FILE",
            help="lists to choose among, in columns item_1, item_2, ... (default: all lists)",
        )
        parser.add_argument(
            "--size",
            type=count,
            metavar="COUNT",
            help="items in a list (default: 3; a pair: 2; with --lists: as many as these have)",
        )
        parser.add_argument(
            "--count", type=whole(1, MAX_BUDGET), default=20, metavar="COUNT", help="questions to write (default: 20)"
        )
        parser.add_argument(
            "--features-alone",
            action="store_true",
            help="ask for what features tell alone: many items may never be asked about then",
        )
        parser.add_argument("--seed", type=natural, default=0, metavar="NUMBER", help="of the search's random starts")


def _run_command(given: argparse.Namespace) -> int:
    from topk_bandit.commands.study import command  # noqa: PLC0415 - other commands need not wait for it

    return {"run": command.run, "ask": command.ask, "learn": command.learn}[given.word](given)


def _import(given: argparse.Namespace) -> int:
    from topk_bandit.commands.study import imports  # noqa: PLC0415 - other commands need not wait for it

    return imports.run(given)
