"""What the clients take and return about studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from topk_bandit.domain.studies import (
    AnswerKind,
    AnswerOutcome,
    DeclineReason,
    DesignProgress,
    DesignState,
    LinkState,
    ModelScore,
    PreferenceModel,
)

if TYPE_CHECKING:
    from datetime import datetime

    from topk_bandit.client.errors import ClientError

__all__ = [
    "AnswerKind",
    "AnswerOutcome",
    "AnswersOutcome",
    "BestWorst",
    "DeclineReason",
    "Declined",
    "Design",
    "DesignProgress",
    "DesignState",
    "GivenAnswer",
    "ImportedAnswers",
    "ItemPreference",
    "LinkState",
    "ModelScore",
    "PastAnswer",
    "PreferenceModel",
    "Preferences",
    "QueryPreferences",
    "Question",
    "Questions",
    "Respondent",
    "Study",
    "StudyLink",
    "StudyList",
    "Tiers",
]


@dataclass(frozen=True, slots=True)
class Tiers:
    """An order of items in which several may share a place.

    Attributes
    ----------
    tiers
        Item ids of each tier, best tier first. Items shown that are in none are below all others, in no order: the best
        two of a list are ``Tiers([["tea"], ["milk"]])``.
    """

    tiers: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class BestWorst:
    """The ids of the best and of the worst item; all others are between them, in no order."""

    best: str
    worst: str


@dataclass(frozen=True, slots=True)
class Declined:
    """Somebody said nothing of the items: "skipped", or "none_of_these". It is counted, and never learned from."""

    reason: DeclineReason | str = DeclineReason.SKIPPED


GivenAnswer: TypeAlias = str | Sequence[str] | Mapping[str, float] | Tiers | BestWorst | Declined
"""The chosen item's id, of a choice or a pair; item ids, best first; ratings by item id; or what a class says."""


@dataclass(frozen=True, slots=True)
class StudyList:
    """A list that people can be asked about: item ids, and the id of their query in a study with queries."""

    items: Sequence[str]
    query: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """A study.

    Attributes
    ----------
    name
        Its id, without the tenant.
    state
        Where its design stands.
    imported_count
        How many answers that were given elsewhere it has, beside `answered_count`.
    design
        How far its design is, or was when it ended; None before anything is known of it.
    items, queries
        Features by id; empty in lists of studies.
    features_alone
        Whether the design is for what features tell alone; False in lists of studies.
    designed_item_count
        How many items are in any list of the design: the others are never asked about. 0 before there is a design, and
        in lists of studies.
    model
        How utilities are learned; None in lists of studies.
    stream_rate
        Of a model that is a stream; None for the service's own, and in lists of studies.
    given_list_count
        How many lists it chooses questions among; 0 for all there are, in lists of studies, and of a design's result.
    """

    name: str
    answer_kind: AnswerKind
    list_size: int
    budget: int
    state: DesignState
    design: DesignProgress | None
    asked_count: int
    answered_count: int
    imported_count: int
    item_count: int
    query_count: int
    create_time: datetime
    items: Mapping[str, tuple[float, ...]]
    queries: Mapping[str, tuple[float, ...]]
    features_alone: bool = False
    designed_item_count: int = 0
    model: PreferenceModel | None = None
    stream_rate: float | None = None
    given_list_count: int = 0


@dataclass(frozen=True, slots=True)
class StudyLink:
    """A link by which people answer questions of a study on the service's own page.

    Attributes
    ----------
    id
        What it is revoked by.
    token
        What the page shows instead of a key; only `Client.create_study_link` returns it.
    study
        Id of its study.
    most_answers, answers_each
        How many answers come through it at most, and how many questions one device is asked.
    state
        Whether people can answer through it: "open", "revoked", "expired" or "used_up".
    answered_count, respondent_count
        How many answers came, and from how many devices.
    last_answer_time
        When the newest came; None before any.
    """

    study: str
    id: str
    most_answers: int
    answers_each: int
    expire_time: datetime
    create_time: datetime
    state: LinkState
    title: str = ""
    thanks: str = ""
    accent_color: str = ""
    background_color: str = ""
    text_color: str = ""
    answered_count: int = 0
    respondent_count: int = 0
    last_answer_time: datetime | None = None
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Design:
    """How a study's design stands.

    Attributes
    ----------
    study
        The study's id.
    attempt
        How often it was begun.
    progress
        How far it is; None before anything is known.
    result
        The study, once the design is there.
    error
        Why there will be none: `Cancelled`, `InvalidArgument` or `Internal`.
    """

    study: str
    attempt: int
    progress: DesignProgress | None
    result: Study | None
    error: ClientError | None

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.result is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class Question:
    """A list of items to show to a person.

    Attributes
    ----------
    id
        What its answer is submitted for.
    query
        Id of what the items are seen for; empty in a study without queries.
    items
        Item ids, in an order that means nothing.
    """

    id: str
    query: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Questions:
    """What to ask, and how far the study is.

    Attributes
    ----------
    gathered
        How much of the information was gathered by the answers, 0 to 1.
    """

    questions: tuple[Question, ...]
    asked_count: int
    answered_count: int
    budget: int
    gathered: float


@dataclass(frozen=True, slots=True)
class AnswersOutcome:
    """What became of answers: each question id is in exactly one of the two."""

    outcomes: dict[str, AnswerOutcome]
    errors: dict[str, ClientError]


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """An answer to a question that the study did not ask.

    Attributes
    ----------
    answer
        What was said, as `Client.submit_answers` takes it.
    shown
        Item ids, in any order; not needed for rankings and ratings, and for tiers that name all items.
    query
        Id of what the items were seen for; empty in a study without queries.
    respondent
        Who answered, the same name in all answers of one person; empty for nobody in particular.
    """

    answer: GivenAnswer
    shown: Sequence[str] = ()
    query: str = ""
    respondent: str = ""


@dataclass(frozen=True, slots=True)
class ImportedAnswers:
    """What became of answers that were given elsewhere.

    Attributes
    ----------
    next_row
        With which row the import goes on.
    accepted, duplicates
        How many of the answers were taken now, and how many had been before.
    """

    next_row: int
    accepted: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class ItemPreference:
    """What was learned of an item: its utility, how uncertain that is, and its rank, 1 for the best."""

    id: str
    utility: float
    standard_deviation: float
    rank: int


@dataclass(frozen=True, slots=True)
class QueryPreferences:
    """What was learned for one query, whose id is empty in a study without queries; best item first."""

    query: str
    items: tuple[ItemPreference, ...]


@dataclass(frozen=True, slots=True)
class Respondent:
    """Somebody who is named with answers: how many they are, and how probably they were given at random."""

    name: str
    answered_count: int
    careless_probability: float


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a study learned.

    Attributes
    ----------
    queries
        In the order of the study's queries; one for a study without queries.
    answered_count
        How many answers it comes from, imported ones included.
    gathered
        How much of the information they gathered, 0 to 1.
    model
        What utilities were learned by.
    scores
        How well each model that the answers allow predicts those that it did not learn from, best first; empty unless
        models were to be compared, and for fewer than 10 answers.
    compared_count
        How many answers were predicted for them.
    skipped_count, none_of_these_count
        How many answers were declined, and why.
    agreement, agreement_count
        The share of pairs of answers that order the same two items alike, 1/2 where people guess, and how many pairs
        there are.
    respondents, respondent_count
        Who is named with answers, at most 1,000, the one first who answers most probably at random; how many there are.
    """

    queries: tuple[QueryPreferences, ...]
    answered_count: int
    gathered: float
    model: PreferenceModel | None = None
    scores: tuple[ModelScore, ...] = ()
    compared_count: int = 0
    skipped_count: int = 0
    none_of_these_count: int = 0
    agreement: float = 0.0
    agreement_count: int = 0
    respondents: tuple[Respondent, ...] = ()
    respondent_count: int = 0

    @property
    def items(self) -> tuple[ItemPreference, ...]:
        """The items of a study without queries, best first."""
        [only] = self.queries
        return only.items
