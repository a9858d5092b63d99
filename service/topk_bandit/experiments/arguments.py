"""The words and flags of `topk-bandit experiment`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

__all__ = ["DESCRIPTION", "add_arguments"]

DESCRIPTION = """\
Run one of the papers' experiments again, and write NAME.png, NAME.csv and NAME.json.

  topk-bandit experiment dope         which lists to ask about: ranking loss by number of questions
  topk-bandit experiment dopewolfe    which K of all items to ask about: ranking loss and NDCG
  topk-bandit experiment aggregation  rank aggregation with features, as the items become many
  topk-bandit experiment warm-start   a bandit that starts with what a study learned, and one that does not

dope and dopewolfe can be run on your own rankings: --data rankings.csv (or .parquet), one line an item of a list, with
the columns list, item, position (the smallest is the best), and all others features.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiments to a parser, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="NAME", title="experiments")
    dope = _added(words, "dope", runs=100, help_text="which lists to ask about")
    _add_data(dope)
    _add_numbers(dope, "--questions", default=tuple(range(10, 101, 10)), help_text="numbers of questions")
    dopewolfe = _added(words, "dopewolfe", runs=100, help_text="which K of all items to ask about")
    _add_data(dopewolfe)
    _add_numbers(dopewolfe, "--questions", default=tuple(range(100, 1001, 100)), help_text="numbers of questions")
    _add_numbers(dopewolfe, "--list-sizes", default=(2, 3, 4), help_text="items of a list, K, one panel each")
    growth = _added(words, "aggregation", runs=20, help_text="rank aggregation with features, of many items")
    _add_numbers(growth, "--items", default=(500, 1000, 2000, 5000, 10_000), help_text="numbers of items")
    warm = _added(words, "warm-start", runs=20, help_text="what a study is worth to a bandit")
    warm.add_argument("--rounds", type=_positive, default=300, metavar="COUNT", help="rounds to play (default: 300)")


def _added(
    words: argparse._SubParsersAction[argparse.ArgumentParser], name: str, *, runs: int, help_text: str
) -> argparse.ArgumentParser:
    word = words.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
    word.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write; made if need be")
    word.add_argument("--runs", type=_positive, default=runs, metavar="COUNT", help=f"how many (default: {runs})")
    word.add_argument("--seed", type=_seed, default=0, metavar="NUMBER", help="of all that is random (default: 0)")
    cores = os.cpu_count() or 1
    word.add_argument(
        "--processes", type=_positive, default=cores, metavar="COUNT", help=f"that share the runs (default: {cores})"
    )
    word.set_defaults(run=_run, experiment=name)
    return word


def _add_data(word: argparse.ArgumentParser) -> None:
    word.add_argument("--data", type=Path, metavar="FILE", help="your own rankings with features: .csv or .parquet")


def _add_numbers(word: argparse.ArgumentParser, flag: str, *, default: tuple[int, ...], help_text: str) -> None:
    listed = ",".join(map(str, default))
    word.add_argument(
        flag, type=_numbers, default=default, metavar="N,N,...", help=f"{help_text}, increasing (default: {listed})"
    )


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(_positive(part) for part in text.split(","))
    if sorted(set(numbers)) != list(numbers):
        raise argparse.ArgumentTypeError(f"expected increasing numbers, got {text!r}")
    return numbers


def _positive(text: str) -> int:
    number = _seed(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text!r}")
    return number


def _seed(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected at least 0, got {text!r}")
    return number


def _run(given: argparse.Namespace) -> int:
    from topk_bandit.experiments.command import show  # noqa: PLC0415 - --help need not wait for it

    return show(given)
