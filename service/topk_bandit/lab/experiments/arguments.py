"""The words and flags of `topk-bandit experiment`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    _Words: TypeAlias = argparse._SubParsersAction["_ExperimentParser"]  # noqa: SLF001 - it has no other name

__all__ = ["DESCRIPTION", "NAMES", "OF_FACTORS", "POLICY_NAMES", "QUICK", "add_arguments"]

DESCRIPTION = """\
Run the papers' experiments again, and write NAME.png, NAME.csv and NAME.json.

GP-TopK bandits (in shops of synthetic factors, or of yours: --factors or --ratings):
  table-1       what a decision costs as rounds become many: the paper's three ways and the service's
  table-2       how alike the kernels find top-k rankings
  table-3       the bounds on regret beside the regret that is measured, and the information gain
  figure-2      regret, 20 items, slates of 3, one user and five
  figure-3      regret, 50 items, slates of 3 and of 6
  figure-4      whether local search finds the best of 10^10 rankings
  figure-5      reward, 50 items, slates of 3 and of 6, nDCG and diversity
  order         where the paper's order of the kernels, WCK <= CK <= WK in regret, holds, where not, and why
  late-rewards  what rewards that come late or never cost
  drift         what preferences that change cost, and what is saved by forgetting
  rivals        the service's policy beside what a shop would otherwise use
  protocol      the service's policy beside the best of the paper's nine, in all settings of figures 2, 3 and 5
  shops         the service's policy and others in 22 kinds of shops, up to 20,000 rounds: regret, and whether figures
                hold (hours; see --shops, --policies and --seeds)
  mishaps       what mistakes of clients cost, wild rewards and contexts, and how soon they are got over (hours; see
                --shops, --mishaps and --seeds)
  compare       two policies in these shops, with as many seeds as it takes to know which has less regret (see --shops,
                --rounds and --precision)
  warm-start    a bandit that starts with what a study learned, and one that does not
  off-policy    what other policies would have earned, from 20,000 logged slates: intervals, and whether they hold

Asking people:
  dope          which lists to ask about: ranking loss by number of questions
  dopewolfe     which K of all items to ask about: ranking loss and NDCG
  graded        what people's own rankings teach, with ties and without, by the size of a list
  aggregation   rank aggregation with features, as the items become many

  all           all of these but shops, mishaps and compare, and report.html

Each takes --quick, for a look with few trials. Same seed, same numbers, whatever the number of processes. What was
stopped goes on with the same command. dope and dopewolfe can be run on your own rankings: --data rankings.csv (or
.parquet), one line an item of a list, with the columns list, item, position (the smallest is the best), and all others
features.
"""

NAMES = (
    "table-1", "table-2", "table-3", "figure-2", "figure-3", "figure-4", "figure-5", "order", "protocol", "rivals",
    "late-rewards", "drift", "warm-start", "off-policy", "dope", "dopewolfe", "graded", "aggregation",
)  # fmt: skip
"""All experiments, in the order of the report; `shops`, `mishaps` and `compare`, which take hours, are run alone."""

QUICK: dict[str, dict[str, object]] = {
    "table-1": {"rounds": 128},
    "table-2": {},
    "table-3": {"trials": 2, "rounds": 20},
    "figure-2": {"trials": 2, "rounds": 40},
    "figure-3": {"trials": 2, "rounds": 20},
    "figure-4": {"trials": 5},
    "figure-5": {"trials": 2, "rounds": 20},
    "order": {"trials": 2, "rounds": 40},
    "rivals": {"trials": 2, "rounds": 40},
    "protocol": {"trials": 2, "rounds": 20},
    "late-rewards": {"trials": 2, "rounds": 40},
    "drift": {"trials": 2, "rounds": 80},
    "shops": {"seeds": 2, "rounds": (40, 80), "shops": ("additive", "clicks-8", "candidates")},
    "mishaps": {"seeds": 1, "shops": ("additive", "noisy"), "mishaps": ("first reward",)},
    "compare": {"rounds": (40,), "shops": ("additive", "noisy"), "most_seeds": 4},
    "warm-start": {"trials": 2, "rounds": 60},
    "off-policy": {"trials": 2, "rounds": 500},
    "dope": {"trials": 2, "questions": (10, 40)},
    "dopewolfe": {"trials": 2, "questions": (100, 400), "list_sizes": (2,)},
    "graded": {"trials": 2, "list_sizes": (2, 3)},
    "aggregation": {"trials": 2, "items": (200, 400)},
    "all": {},
}
"""What `--quick` sets, of what is not given: a look at all experiments within about a minute."""

OF_FACTORS = ("table-3", "figure-2", "figure-3", "figure-5", "order", "protocol", "rivals", "late-rewards", "drift")
"""Those in shops of the factors."""

POLICY_NAMES = ("service", "random", "popularity", "linear", "vw-ccb", "vw-slates")
"""What policies are called in flags (`policy_names`)."""

_ROUNDS, _ROUNDS_OF_REWARDS = 200, 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiments to a parser, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="NAME", title="experiments", parser_class=_ExperimentParser)
    _add_rounds(_add_experiment(words, "table-1", "what a decision costs as rounds become many", trials=1), 800)
    _add_experiment(words, "table-2", "how alike the kernels find top-k rankings")
    _add_bandits(words)
    _add_experiment(words, "figure-4", "whether local search finds the best of 10^10 rankings", trials=100)
    warm = _add_experiment(words, "warm-start", "what a study is worth to a bandit", trials=20)
    _add_rounds(warm, 300)
    _add_off_policy(words)
    _add_shops(words)
    _add_mishaps(words)
    _add_comparison(words)
    _add_preferences(words)
    _add_everything(words)


def _add_bandits(words: _Words) -> None:
    for name, trials, rounds, help_text in (
        ("table-3", 6, None, "bounds on regret beside the regret that is measured"),
        ("figure-2", 6, _ROUNDS, "regret, 20 items, slates of 3, one user and five"),
        ("figure-3", 6, None, "regret, 50 items, slates of 3 and of 6"),
        ("figure-5", 6, _ROUNDS_OF_REWARDS, "reward, 50 items, slates of 3 and of 6, nDCG and diversity"),
        ("order", 60, _ROUNDS, "where the paper's order of the kernels holds, and why"),
        ("protocol", 10, None, "the service's policy beside the best of the paper's nine"),
        ("rivals", 10, 500, "the service's policy beside what a shop would otherwise use"),
        ("late-rewards", 10, _ROUNDS, "what rewards that come late or never cost"),
        ("drift", 10, 400, "what preferences that change cost"),
    ):
        word = _add_experiment(words, name, help_text, trials=trials)
        _add_rounds(word, rounds)
        _add_source(word)


def _add_shops(words: _Words) -> None:
    word = _add_experiment(words, "shops", "the service's policy and others in many kinds of shops", seeded=True)
    rounds = (500, 2000, 8000, 20_000)
    _add_numbers(word, "--rounds", default=rounds, help_text="after how many rounds to compare; the last are played")
    _add_choice_of_shops(word)
    word.add_argument(
        "--policies",
        type=_split_names,
        metavar="NAME,NAME,...",
        help=f"some of {', '.join(POLICY_NAMES)} (default: all)",
    )
    _add_source(word)


def _add_mishaps(words: _Words) -> None:
    word = _add_experiment(words, "mishaps", "what mistakes of clients cost", seeded=True)
    _add_choice_of_shops(word)
    word.add_argument(
        "--mishaps", type=_split_names, metavar="NAME,NAME,...", help="some of the mistakes (default: all)"
    )


def _add_comparison(words: _Words) -> None:
    word = _add_experiment(words, "compare", "two policies, with as many seeds as it takes", seeded=True)
    word.add_argument(
        "pair",
        nargs=2,
        metavar="POLICY",
        help=f"one of {', '.join(POLICY_NAMES)}, with settings of its own: service:near-share=0,rows=64",
    )
    _add_numbers(
        word, "--rounds", default=(500, 2000), help_text="after how many rounds to compare; the last are played"
    )
    _add_shops_flag(word)
    word.add_argument(
        "--precision",
        type=_share,
        default=0.015,
        metavar="SHARE",
        help="play until the mean difference has so small a standard error, as a part of the regret (default: 0.015)",
    )
    word.add_argument(
        "--most-seeds", type=_positive, default=64, metavar="COUNT", help="of each kind of shop (default: 64)"
    )


def _add_choice_of_shops(word: argparse.ArgumentParser) -> None:
    word.add_argument(
        "--seeds", type=_positive, default=3, metavar="COUNT", help="shops of each kind, from --seed on (default: 3)"
    )
    _add_shops_flag(word)


def _add_shops_flag(word: argparse.ArgumentParser) -> None:
    word.add_argument("--shops", type=_split_names, metavar="NAME,NAME,...", help="some of the shops (default: all)")


def _add_off_policy(words: _Words) -> None:
    word = _add_experiment(words, "off-policy", "what other policies would have earned, from a log", trials=50)
    _add_rounds(word, 20_000)
    for flag, share, kind in (("--near-share", 0.04, "near the best one"), ("--uniform-share", 0.01, "of any items")):
        word.add_argument(
            flag, type=_share, default=share, metavar="SHARE", help=f"of slates {kind} (default: {share:g})"
        )


def _add_everything(words: _Words) -> None:
    word = _add_experiment(words, "all", "all experiments, and one page of them: report.html", seeded=True)
    word.add_argument("--only", type=_names, default=NAMES, metavar="NAME,NAME,...", help="some of them (default: all)")
    _add_source(word)


def _add_preferences(words: _Words) -> None:
    dope = _add_experiment(words, "dope", "which lists to ask about", trials=100)
    _add_data(dope)
    _add_numbers(dope, "--questions", default=tuple(range(10, 101, 10)), help_text="numbers of questions")
    dopewolfe = _add_experiment(words, "dopewolfe", "which K of all items to ask about", trials=100)
    _add_data(dopewolfe)
    _add_numbers(dopewolfe, "--questions", default=tuple(range(100, 1001, 100)), help_text="numbers of questions")
    _add_numbers(dopewolfe, "--list-sizes", default=(2, 3, 4), help_text="items of a list, K, one panel each")
    graded = _add_experiment(words, "graded", "what people's own rankings teach, by the size of a list", trials=100)
    _add_numbers(graded, "--list-sizes", default=(2, 3, 5, 10), help_text="items of a list, K")
    growth = _add_experiment(words, "aggregation", "rank aggregation with features, of many items", trials=20)
    _add_numbers(growth, "--items", default=(500, 1000, 2000, 5000, 10_000), help_text="numbers of items")


class _ExperimentParser(argparse.ArgumentParser):
    """Parses the flags of an experiment; with ``--quick`` other values stand for what is not given."""

    quick: Mapping[str, object]

    def parse_known_args(  # type: ignore[override] # the namespace of an experiment is never a caller's own
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        given, rest = super().parse_known_args(args, namespace)
        if not given.quick:
            return given, rest
        # A default is set only where the namespace has nothing yet, and a flag in any case.
        return super().parse_known_args(args, argparse.Namespace(**self.quick))


def _add_experiment(
    words: _Words, name: str, help_text: str, *, trials: int | None = None, seeded: bool = False
) -> argparse.ArgumentParser:
    """Add an experiment; one without trials and seed has nothing random."""
    word = words.add_parser(name, description=f"{help_text[0].upper()}{help_text[1:]}.")
    word.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write; made if need be")
    if trials is not None:
        word.add_argument(
            "--trials", type=_positive, default=trials, metavar="COUNT", help=f"how many (default: {trials})"
        )
    if seeded or trials is not None:
        word.add_argument("--seed", type=_seed, default=0, metavar="NUMBER", help="of all that is random (default: 0)")
    cores = os.cpu_count() or 1
    word.add_argument(
        "--processes", type=_positive, default=cores, metavar="COUNT", help=f"that share the jobs (default: {cores})"
    )
    word.add_argument(
        "--quick", action="store_true", help="a look: few trials and rounds, unless their number is given; says little"
    )
    word.set_defaults(experiment=name)
    word.quick = QUICK[name]
    return word


def _add_rounds(word: argparse.ArgumentParser, rounds: int | None) -> None:
    """Add the number of rounds; None for those of the paper's settings."""
    default = rounds or f"{_ROUNDS}; 400 where slates of 6 earn nDCG; {_ROUNDS_OF_REWARDS} in figure 5"
    word.add_argument(
        "--rounds", type=_positive, default=rounds, metavar="COUNT", help=f"rounds to play (default: {default})"
    )


def _add_source(word: argparse.ArgumentParser) -> None:
    """Add where the factors of users and items come from."""
    source = word.add_mutually_exclusive_group()
    source.add_argument(
        "--factors", type=Path, metavar="FILE", help="factors of users (U) and items (V): .npz (default: synthetic)"
    )
    source.add_argument("--ratings", type=Path, metavar="FILE", help="ratings to find the factors of: MovieLens's")


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


def _names(text: str) -> tuple[str, ...]:
    names = text.split(",")
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"there is no experiment {name!r}")
    return tuple(name for name in NAMES if name in names)


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not 0.0 < share < 0.5:
        raise argparse.ArgumentTypeError(f"expected a share above 0 and below 0.5, got {text!r}")
    return share


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
