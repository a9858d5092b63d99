"""`topk-bandit study`: from a file of items to questions, and from a file of answers to a ranking with its spread."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from topk_bandit.commands.study.answer_files import AnswerFile
from topk_bandit.commands.study.files import (
    read_answers,
    read_described,
    read_lists,
    write_lists,
    write_preferences,
    write_respondents,
)
from topk_bandit.commands.study.pictures import describe_best, draw, load_figures, scores_table, table
from topk_bandit.commands.whole_files import write_whole
from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.domain.studies import MODELS_OF, STREAMS, AnswerKind
from topk_bandit.preferences.agreement import measure_agreement
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.held_out import FEWEST_COMPARED, compare_models
from topk_bandit.preferences.questions import QuestionPool, choose_next_lists, count_answers, name_rows, number_rows
from topk_bandit.preferences.respondents import RespondentNames
from topk_bandit.preferences.study_models import RatedLists, fit
from topk_bandit.preferences.tiers import TieredAnswers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from topk_bandit.commands.study.files import Answered
    from topk_bandit.domain.studies import PreferenceModel, Respondent
    from topk_bandit.preferences.designs.optimal import Progress as DesignProgress
    from topk_bandit.preferences.designs.optimal import SubsetDesign
    from topk_bandit.preferences.study_models import StudyAnswers

    IntArray = NDArray[np.int64]

__all__ = ["ask", "learn", "run"]

QUESTIONS, DESIGN = _OF_ASKING = ("questions.csv", "design.csv")
PREFERENCES, FIGURE, RESPONDENTS = _OF_LEARNING = ("preferences.csv", "preferences.png", "respondents.csv")

_USUAL_SIZE = 3

_DOUBTFUL, _NAMED = 0.9, 5
"""From this probability on a respondent is said to answer at random, and so many of them are named."""

_SHOWN = 3
"""How many queries have their utilities on the screen."""


def run(given: argparse.Namespace) -> int:
    """Learn from the answers, and write what to ask next; return the exit status."""
    study = _Study(given, writes=(*_OF_LEARNING, *_OF_ASKING))
    size = study.list_size()
    answers = study.read_answers(given.answers)
    study.learn(answers)
    study.ask(answers, size)
    return 0


def ask(given: argparse.Namespace) -> int:
    """Write which lists to ask about; return the exit status."""
    study = _Study(given, writes=_OF_ASKING)
    study.ask([], study.list_size())
    return 0


def learn(given: argparse.Namespace) -> int:
    """Write what the answers tell; return the exit status."""
    study = _Study(given, writes=_OF_LEARNING)
    study.learn(study.read_answers(given.answers))
    return 0


class _Study:
    """The files that were named, and the screen."""

    def __init__(self, given: argparse.Namespace, *, writes: Sequence[str]) -> None:
        self._given = given
        self._console = Console()
        self._check_nothing_is_overwritten(writes)
        self._kind: AnswerKind = given.kind
        self._items = read_described(given.items, kind="item")
        self._queries = read_described(given.queries, kind="query") if given.queries else None
        feedback = Feedback.RATING if self._kind is AnswerKind.RATINGS else Feedback.RANKING
        features = self._queries.features if self._queries else None
        alone: bool = getattr(given, "features_alone", False)  # `learn` has no design
        self._pool = QuestionPool.of(
            self._items.features, features, feedback=feedback, features_alone=alone, given=self._read_lists()
        )

    def _check_nothing_is_overwritten(self, names: Iterable[str]) -> None:
        """Refuse to write over a file that is read, such as questions that were filled in."""
        for flag in ("items", "queries", "lists", "answers"):
            path: Path | None = getattr(self._given, flag, None)
            for name in names:
                target = self._given.out / name
                if path is not None and target.exists() and path.exists() and target.samefile(path):
                    problem = f"{path} would be overwritten: give it another name, or another --out"
                    raise InvalidArgumentError(f"--{flag}", problem)

    def _read_lists(self) -> IntArray | None:
        """Return the rows of the lists to choose among; None for all lists."""
        path: Path | None = getattr(self._given, "lists", None)
        if path is None:
            return None
        lists = read_lists(path, fewest=self._fewest, items=self._items, queries=self._queries)
        return number_rows(np.array([(query, *shown) for query, shown in lists]), len(self._items.ids))

    @property
    def _fewest(self) -> int:
        """How many items a list has at least."""
        return 1 if self._kind is AnswerKind.RATINGS else 2

    def _make_folder(self) -> None:
        """Make the folder to write to: before what takes long, and after all that may be wrong with the files."""
        try:
            self._given.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgumentError("--out", f"{self._given.out} can't be made: {error.strerror}") from None

    def read_answers(self, path: Path) -> Sequence[Answered]:
        """Return the answers of a file."""
        file = AnswerFile.of(path, self._given)
        answers, found = read_answers(file, kind=self._kind, items=self._items, queries=self._queries)
        for line in found.remarks("an answer"):
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        declined = Counter(answer.declined for answer in answers if answer.declined)
        for reason, count in declined.items():
            self._console.print(f"{count} answers are {reason}: they are not learned from.", highlight=False)
        return [answer for answer in answers if answer.declined is None]

    def learn(self, answers: Sequence[Answered]) -> None:
        """Write and show the utilities that answers tell of."""
        model = self._choose_model()
        said, rate = self._as_arrays(answers), self._given.stream_rate
        self._make_folder()
        with self._console.status(f"Learning from {len(answers)} answers ..."):
            found = fit(model, self._pool, said, stream_rate=rate)
            utilities = [found.of_query(query) for query in range(self._pool.n_queries)]
        agreement = measure_agreement(said)
        if agreement.pairs:
            line = f"{agreement.share:.1%} of {agreement.pairs:,} pairs of answers about the same two items agree."
            self._console.print(line, highlight=False, soft_wrap=True)
        if self._given.compare:
            self._compare(said)
        titles = self._queries.ids if self._queries else (f"{len(answers)} answers",)
        self._write(
            PREFERENCES,
            lambda path: write_preferences(path, utilities, items=self._items, queries=self._queries),
        )
        try:
            drawing = load_figures()
        except ConfigurationError as error:
            self._console.print(f"no figure: {error}", highlight=False, markup=False, soft_wrap=True)
            self._warn_of_an_older(FIGURE)
        else:
            self._write(FIGURE, lambda path: draw(path, utilities, self._items.ids, titles=titles, figures=drawing))
        self._describe_respondents(_names_of(answers).describe(found.careless))
        for of_query, title in list(zip(utilities, titles, strict=True))[:_SHOWN]:
            self._console.print(table(of_query, self._items.ids, title=title))

    def _choose_model(self) -> PreferenceModel:
        """Return the model that was named, or the first that the answers allow."""
        allowed = MODELS_OF[self._kind]
        model: PreferenceModel = self._given.model or allowed[0]
        if model not in allowed:
            raise InvalidArgumentError("--model", f"for {self._kind} expected one of {', '.join(allowed)}, got {model}")
        if self._given.stream_rate is not None and model not in STREAMS and not self._given.compare:
            raise InvalidArgumentError("--stream-rate", f"is of a model that is a stream: {', '.join(STREAMS)}")
        return model

    def _compare(self, answers: StudyAnswers) -> None:
        """Show how well each model predicts answers that it did not learn from."""
        with self._console.status("Comparing models ..."):
            scores, count = compare_models(
                MODELS_OF[self._kind], self._pool, answers, stream_rate=self._given.stream_rate
            )
        if not scores:
            self._console.print(f"Models need {FEWEST_COMPARED} answers to be compared.", highlight=False)
            return
        self._console.print(scores_table(scores, count))
        self._console.print(describe_best(scores), highlight=False, soft_wrap=True)

    def list_size(self) -> int:
        """Return how many items a list to ask about has; `InvalidArgumentError` is raised if there are fewer."""
        pair = 2 if self._kind is AnswerKind.PAIR else None
        if self._pool.given is not None:
            size = int(self._pool.given.rows.shape[1])
            if size != (pair or self._given.size or size):
                raise InvalidArgumentError("--lists", f"expected lists of {pair or self._given.size} items, got {size}")
            return size
        size = int(pair or self._given.size or _USUAL_SIZE)
        if not self._fewest <= size <= len(self._items.ids):
            raise InvalidArgumentError("--size", f"expected {self._fewest} to {len(self._items.ids)} items, got {size}")
        return size

    def ask(self, answers: Sequence[Answered], size: int) -> None:
        """Write which lists of so many items to ask about next, given the answers so far."""
        of, count = self._pool, self._given.count
        design = self._choose_design(size, len(answers) + count)
        of_one = of.information(design.subsets, design.weights)
        asked, besides = count_answers(of, design, self._rows(answers))
        have = of.information(design.subsets, asked) + besides
        chosen = design.subsets[choose_next_lists(of, design, asked=asked, besides=besides, count=count)]
        self._write_lists(QUESTIONS, chosen, first=("question", map(str, range(1, count + 1))))
        self._write_lists(DESIGN, design.subsets, first=("weight", map(str, design.weights.tolist())))
        self._console.print(
            f"{len(design.weights)} lists are worth asking about; no other choice of lists has a log det of its "
            f"information larger by more than {design.gap:.2g}.",
            highlight=False,
        )
        self._describe_items_asked(design)
        if answers:
            share = of.measure_efficiency(have, of_one, budget=len(answers) + count, list_size=size)
            self._console.print(f"So far {share:.0%} of what {len(answers) + count} such questions can tell is known.")

    def _write_lists(self, name: str, lists: IntArray, *, first: tuple[str, Iterable[str]]) -> None:
        shown = name_rows(lists, self._pool.n_items)
        self._write(name, lambda path: write_lists(path, shown, first=first, items=self._items, queries=self._queries))

    def _describe_items_asked(self, design: SubsetDesign) -> None:
        """Say how many items the lists have, and what is not learned of the others."""
        count = len(np.unique(design.subsets % self._pool.n_items))
        line = f"{count} of {self._pool.n_items} items are in these lists."
        if count < self._pool.n_items and not self._pool.asks_for_own_parts and self._pool.has_own_parts:
            line += " Of the others only what their features tell will be known."
        self._console.print(line, highlight=False, soft_wrap=True)

    def _choose_design(self, size: int, budget: int) -> SubsetDesign:
        self._make_folder()
        target = self._pool.target_gap(size, budget)
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn()
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task("Choosing lists", total=1.0, state="")
            first: list[float] = []

            def show(now: DesignProgress) -> bool:
                first.append(max(now.gap, target))
                done = math.log(first[0] / first[-1]) / max(math.log(first[0] / target), 1e-9)
                progress.update(task, completed=done, state=f"gap {now.gap:.3g}, to reach {target:.3g}")
                return False

            rng = np.random.default_rng(self._given.seed)
            return self._pool.design(list_size=size, budget=budget, rng=rng, watch=show)

    def _rows(self, answers: Sequence[Answered]) -> list[list[int]]:
        return [[row for tier in self._tiers(answer) for row in tier] for answer in answers]

    def _tiers(self, answer: Answered) -> list[list[int]]:
        first = answer.query * self._pool.n_items
        return [[first + item for item in tier] for tier in answer.tiers]

    def _as_arrays(self, answers: Sequence[Answered]) -> StudyAnswers:
        count, respondents = len(self._pool.groups), _names_of(answers).numbers
        if self._kind is AnswerKind.RATINGS:
            return RatedLists(self._rows(answers), [answer.ratings for answer in answers], count, respondents)
        tiers = [self._tiers(answer) for answer in answers]
        return TieredAnswers.of(tiers, n_items=count, respondents=respondents)

    def _describe_respondents(self, respondents: Sequence[Respondent]) -> None:
        """Write who answered, and name those who seem to have answered at random."""
        if not respondents:
            self._warn_of_an_older(RESPONDENTS)
            return
        self._write(RESPONDENTS, lambda path: write_respondents(path, respondents))
        doubtful = [one.respondent for one in respondents if one.careless >= _DOUBTFUL]
        line = f"{len(doubtful)} of {len(respondents)} respondents answered as if at random"
        if doubtful:
            names = ", ".join(doubtful[:_NAMED]) + (", ..." if len(doubtful) > _NAMED else "")
            line += f", so that their answers hardly count: {names}"
        self._console.print(f"{line}.", highlight=False, markup=False, soft_wrap=True)

    def _warn_of_an_older(self, name: str) -> None:
        """Name a file that stays in the folder, and has nothing of these answers."""
        if (path := self._given.out / name).exists():
            self._console.print(f"{path} is not of these answers", highlight=False, markup=False, soft_wrap=True)

    def _write(self, name: str, write: Callable[[Path], None]) -> None:
        path = self._given.out / name
        with write_whole(path) as draft:
            write(draft)
        self._console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _names_of(answers: Sequence[Answered]) -> RespondentNames:
    return RespondentNames([answer.respondent for answer in answers])
