"""Values of studies, without behaviour.

A study asks people about short lists of items, and learns the items' utilities from what they answer. Times are
milliseconds of the store's clock since the Unix epoch (`*_ms`). An item, a query and a list are named by their index in
the tuple that holds them; a question by its number, from 1 for the first that was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BYTES_PER_NUMBER",
    "DEFAULT_ANSWERS_EACH",
    "DEFAULT_STREAM_RATE",
    "LARGEST_STREAM_RATE",
    "MAX_ANSWERS_EACH",
    "MAX_BUDGET",
    "MAX_GIVEN_LISTS",
    "MAX_LINK_DAYS",
    "MAX_LIST_SIZE",
    "MAX_RESPONDENTS",
    "MAX_STUDY_MAGNITUDE",
    "MODELS_OF",
    "SMALLEST_STREAM_RATE",
    "STREAMS",
    "Answer",
    "AnswerKind",
    "AnswerOutcome",
    "AnswersImported",
    "ChoiceAnswer",
    "DeclineReason",
    "DeclinedAnswer",
    "DesignCancelled",
    "DesignChosen",
    "DesignEnd",
    "DesignFailed",
    "DesignProgress",
    "DesignRestarted",
    "DesignState",
    "GivenAnswer",
    "GivenBestWorst",
    "GivenChoice",
    "GivenDecline",
    "GivenPastAnswer",
    "GivenRanking",
    "GivenRatings",
    "GivenTiers",
    "ItemPreference",
    "LinkCreated",
    "LinkPage",
    "LinkQuestion",
    "LinkRevoked",
    "LinkSettings",
    "LinkState",
    "LoggedStudyEvent",
    "ModelScore",
    "PastAnswer",
    "PreferenceModel",
    "Preferences",
    "QueryPreferences",
    "Question",
    "QuestionAnswered",
    "QuestionBatch",
    "QuestionList",
    "QuestionsAsked",
    "RankingAnswer",
    "RatingsAnswer",
    "Respondent",
    "StudyCreated",
    "StudyDesign",
    "StudyEvent",
    "StudyItem",
    "StudyLink",
    "StudyName",
    "StudyQuery",
    "StudySettings",
    "StudyShape",
    "SubmittedAnswer",
    "TiersAnswer",
]

MAX_BUDGET = 100_000
"""So many questions a study asks at most."""

MAX_GIVEN_LISTS = 100_000
"""So many lists a study is given at most."""

BYTES_PER_NUMBER = 4
"""Of an item or a query in `StudySettings.lists`."""

MAX_RESPONDENTS = 1000
"""So many respondents are listed with preferences at most."""

MAX_STUDY_MAGNITUDE = 1e6
"""So far from zero is a feature of an item or a query, or a rating, at most."""

MAX_LIST_SIZE = 12
"""So many items an answer of a service's study is about at most."""


MAX_ANSWERS_EACH = 100
MAX_LINK_DAYS = 400
"""So far ahead a link ends at most."""
DEFAULT_ANSWERS_EACH = 10
"""How many questions one person is asked by a link."""


@dataclass(frozen=True, slots=True, order=True)
class StudyName:
    """One study of one tenant."""

    tenant: str
    study: str

    def __str__(self) -> str:
        return f"tenants/{self.tenant}/studies/{self.study}"


class AnswerKind(StrEnum):
    """The kind of answer that people give about a list."""

    RATINGS = "ratings"
    RANKING = "ranking"
    CHOICE = "choice"
    PAIR = "pair"


class PreferenceModel(StrEnum):
    """How utilities are learned from answers; see ``preferences.study_models``."""

    PLACKETT_LUCE = "plackett_luce"
    VARIATIONAL_TILTED = "variational_tilted"
    VARIATIONAL_QUADRATIC = "variational_quadratic"
    PAIRWISE = "pairwise"
    AGGREGATION_SQUARED = "aggregation_squared"
    AGGREGATION_LOGISTIC = "aggregation_logistic"
    STREAM_SQUARED = "stream_squared"
    STREAM_LOGISTIC = "stream_logistic"
    LEAST_SQUARES = "least_squares"


_OF_ORDERS = tuple(model for model in PreferenceModel if model is not PreferenceModel.LEAST_SQUARES)

MODELS_OF: Mapping[AnswerKind, tuple[PreferenceModel, ...]] = {
    AnswerKind.RATINGS: (
        PreferenceModel.LEAST_SQUARES,
        PreferenceModel.AGGREGATION_SQUARED,
        PreferenceModel.STREAM_SQUARED,
    ),
    AnswerKind.RANKING: _OF_ORDERS,
    AnswerKind.CHOICE: _OF_ORDERS,
    AnswerKind.PAIR: _OF_ORDERS,
}
"""The models that learn from answers of a kind; the first is that of a study without a choice."""

STREAMS = (PreferenceModel.STREAM_SQUARED, PreferenceModel.STREAM_LOGISTIC)
"""The models that take one step for each pair."""

SMALLEST_STREAM_RATE = 1e-6
LARGEST_STREAM_RATE = 1e3
DEFAULT_STREAM_RATE = 0.1
"""How fast the steps of a stream shrink: step t has a size of 2 / (rate t + 2 C)."""


@dataclass(frozen=True, slots=True)
class StudyItem:
    """An item that people are asked about, with its features: no item of a study has any, or all have as many.

    Attributes
    ----------
    title, picture_url
        What people are shown instead of the id, and beside it; empty for none.
    """

    item_id: str
    features: tuple[float, ...]
    title: str = ""
    picture_url: str = ""


@dataclass(frozen=True, slots=True)
class StudyQuery:
    """A query, which items are shown for, with its features."""

    query_id: str
    features: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StudySettings:
    """The settings of a study; they never change.

    Attributes
    ----------
    items
        N items, all with as many features.
    queries
        Q queries, all with as many features; none for a study whose utilities do not depend on one.
    list_size
        K: how many items a question shows; 2 for PAIR.
    budget
        How many questions are asked at most.
    features_alone
        Whether the design is for what features tell alone, so that many items may never be asked about.
    model
        One of `MODELS_OF` the kind of answer; None is the first of these.
    stream_rate
        Of a model that is a stream; None is `DEFAULT_STREAM_RATE`.
    lists
        Those to choose questions among: for each its query and its `list_size` items, as little-endian int32. Empty for
        all lists.
    """

    items: tuple[StudyItem, ...]
    queries: tuple[StudyQuery, ...]
    answer_kind: AnswerKind
    list_size: int
    budget: int
    features_alone: bool = False
    model: PreferenceModel | None = None
    stream_rate: float | None = None
    lists: bytes = b""

    @property
    def chosen_model(self) -> PreferenceModel:
        """The model that the study learns by."""
        return self.model or MODELS_OF[self.answer_kind][0]

    @property
    def given_lists(self) -> int:
        """How many lists there are to choose among; 0 for all lists."""
        return len(self.lists) // (BYTES_PER_NUMBER * (1 + self.list_size))


@dataclass(frozen=True, slots=True)
class StudyShape:
    """A study's settings without the items and queries themselves: how many there are, and of how many features."""

    answer_kind: AnswerKind
    list_size: int
    budget: int
    items: int
    item_features: int
    queries: int
    query_features: int


@dataclass(frozen=True, slots=True)
class QuestionList:
    """A list that can be asked about: K items, for one query (0 in a study without queries)."""

    query: int
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StudyDesign:
    """Which lists to ask about, and how often.

    Attributes
    ----------
    weights
        Share of the questions that each list deserves; positive, together 1.
    log_det
        log det of the information of one question, in the coordinates of `topk_bandit.preferences.designs.spans`.
    gap
        Bound of the distance from the optimum: no design has a log det larger by more than this.
    target_gap
        The gap that was aimed at. The gap is larger if the time was up, or if no better design was found and no smaller
        gap could be proven, which is common for lists of four and more items.
    """

    lists: tuple[QuestionList, ...]
    weights: tuple[float, ...]
    log_det: float
    gap: float
    target_gap: float
    steps: int


class DesignState(StrEnum):
    """The state of a study's design."""

    DESIGNING = "designing"
    READY = "ready"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DesignProgress:
    """How far a design is; see `StudyDesign` and ``preference_service.proto`` for the figures."""

    steps: int
    log_det: float
    gap: float
    target_gap: float


@dataclass(frozen=True, slots=True)
class RatingsAnswer:
    """A number for each item, in the order of the question."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RankingAnswer:
    """The places of the question's items in the list shown, from 0, best first."""

    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The place of the chosen item in the list shown, from 0."""

    place: int


@dataclass(frozen=True, slots=True)
class TiersAnswer:
    """The places of the list shown in tiers, best first: items of one tier are in no order.

    Each place is in one tier. What a ranking or a choice says as well is one of these instead.
    """

    tiers: tuple[tuple[int, ...], ...]


class DeclineReason(StrEnum):
    """Why a person gave no answer that items can be learned from."""

    SKIPPED = "skipped"
    NONE_OF_THESE = "none_of_these"


@dataclass(frozen=True, slots=True)
class DeclinedAnswer:
    """A question that was put to somebody who said nothing of its items: it is counted, and never learned from."""

    reason: DeclineReason


Answer: TypeAlias = RatingsAnswer | RankingAnswer | ChoiceAnswer | TiersAnswer | DeclinedAnswer


@dataclass(frozen=True, slots=True)
class StudyCreated:
    """A study was created, with the first attempt at its design; always the first event of a log."""

    settings: StudySettings


@dataclass(frozen=True, slots=True)
class DesignRestarted:
    """A design was cancelled or failed, and is tried again; attempts are numbered from 1."""

    attempt: int


@dataclass(frozen=True, slots=True)
class DesignChosen:
    """An attempt ended with a design."""

    attempt: int
    design: StudyDesign


@dataclass(frozen=True, slots=True)
class DesignCancelled:
    """An attempt was cancelled."""

    attempt: int


@dataclass(frozen=True, slots=True)
class DesignFailed:
    """An attempt failed.

    Attributes
    ----------
    field
        The field of the study that caused it; empty for an internal failure.
    problem
        What is wrong with the field; for an internal failure the reference id under which it is logged.
    """

    attempt: int
    field: str
    problem: str


DesignEnd: TypeAlias = DesignChosen | DesignCancelled | DesignFailed


@dataclass(frozen=True, slots=True)
class QuestionsAsked:
    """A request was given questions about these lists of the design, in this order."""

    request_id: str
    lists: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuestionAnswered:
    """A question was answered; `respondent` is empty where nobody is named, and where a device of a link answered."""

    question: int
    answer: Answer
    respondent: str = ""


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """An answer to a question that the study did not ask, by places in `shown`, which has the study's order."""

    shown: QuestionList
    answer: Answer
    respondent: str = ""


@dataclass(frozen=True, slots=True)
class AnswersImported:
    """Answers that were given elsewhere: those of an import from row `first_row` on, none left out."""

    import_id: str
    first_row: int
    answers: tuple[PastAnswer, ...]


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of a link, by which people answer without a key; they never change.

    Attributes
    ----------
    most_answers
        How many answers come through it at most.
    answers_each
        How many questions a device is asked at most.
    expire_ms
        When it ends.
    title, thanks
        The page's heading, and what is read at the end; empty for the page's own.
    accent_color, background_color, text_color
        As #rrggbb; empty for the page's own.
    """

    most_answers: int
    answers_each: int
    expire_ms: int
    title: str = ""
    thanks: str = ""
    accent_color: str = ""
    background_color: str = ""
    text_color: str = ""


@dataclass(frozen=True, slots=True)
class LinkCreated:
    """A link was made; `digest` is the SHA-256 of its token's secret, in hexadecimal digits."""

    link_id: str
    digest: str
    settings: LinkSettings


@dataclass(frozen=True, slots=True)
class LinkRevoked:
    """A link was ended for good."""

    link_id: str


StudyEvent: TypeAlias = (
    StudyCreated
    | DesignRestarted
    | DesignChosen
    | DesignCancelled
    | DesignFailed
    | QuestionsAsked
    | QuestionAnswered
    | AnswersImported
    | LinkCreated
    | LinkRevoked
)


@dataclass(frozen=True, slots=True)
class LoggedStudyEvent:
    """An event with its position in a study's log: 1 for the first, then without gaps."""

    position: int
    at_ms: int
    event: StudyEvent


@dataclass(frozen=True, slots=True)
class Question:
    """One question to ask a person."""

    question_id: str
    query_id: str
    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    """Questions for one request, and how far the study is.

    Attributes
    ----------
    asked, answered
        How many questions were asked, these included, and how many answered.
    gathered
        Share of the information that was gathered, in [0, 1]: of the whole budget the share that would tell as much as
        the answers do, asked as the design says.
    """

    questions: tuple[Question, ...]
    asked: int
    answered: int
    budget: int
    gathered: float


class LinkState(StrEnum):
    """Whether people can answer through a link, and why not."""

    OPEN = "open"
    REVOKED = "revoked"
    EXPIRED = "expired"
    USED_UP = "used_up"


@dataclass(frozen=True, slots=True)
class StudyLink:
    """A link, and what came through it.

    Attributes
    ----------
    digest
        That of the secret.
    answered, respondents
        How many answers came, and from how many devices.
    last_answer_ms
        When the newest came; None before any.
    """

    link_id: str
    digest: str
    settings: LinkSettings
    created_ms: int
    revoked: bool = False
    answered: int = 0
    respondents: int = 0
    last_answer_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LinkQuestion:
    """A question for one device, its number among the device's questions, and its items in the order to show."""

    question_id: str
    number: int
    query_id: str
    items: tuple[StudyItem, ...]


@dataclass(frozen=True, slots=True)
class LinkPage:
    """What a device shows next.

    Attributes
    ----------
    respondent
        The device's name.
    answered
        How many questions it has answered.
    questions
        None once it has answered as many as a device may.
    """

    respondent: str
    answer_kind: AnswerKind
    link: StudyLink
    answered: int
    questions: tuple[LinkQuestion, ...]


@dataclass(frozen=True, slots=True)
class GivenRatings:
    """Ratings as they arrive: pairs of item id and number, in any order."""

    ratings: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class GivenRanking:
    """A ranking as it arrives: item ids, best first."""

    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenChoice:
    """A choice, also of a pair, as it arrives."""

    item_id: str


@dataclass(frozen=True, slots=True)
class GivenTiers:
    """Tiers as they arrive: item ids, best tier first; what was shown and is in none is below all, in no order."""

    tiers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class GivenBestWorst:
    """The best and the worst item as they arrive; the others are between them, in no order."""

    best: str
    worst: str


@dataclass(frozen=True, slots=True)
class GivenDecline:
    """A declined answer as it arrives."""

    reason: DeclineReason


GivenAnswer: TypeAlias = GivenRatings | GivenRanking | GivenChoice | GivenTiers | GivenBestWorst | GivenDecline


@dataclass(frozen=True, slots=True)
class SubmittedAnswer:
    """An answer to a question of the study as it arrives; `respondent` is empty where nobody is named."""

    question_id: str
    answer: GivenAnswer | None
    respondent: str = ""


@dataclass(frozen=True, slots=True)
class GivenPastAnswer:
    """An answer that was given elsewhere as it arrives.

    Attributes
    ----------
    query_id
        Empty in a study without queries.
    item_ids
        The items that were shown, in any order; of ratings and a ranking empty means those that the answer names.
    respondent
        Empty where nobody is named.
    """

    query_id: str
    item_ids: tuple[str, ...]
    answer: GivenAnswer | None
    respondent: str = ""


class AnswerOutcome(StrEnum):
    """The outcome of an answer that raised no error."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class ItemPreference:
    """What was learned of an item; `rank` is 1 for the best item of its query."""

    item_id: str
    utility: float
    standard_deviation: float
    rank: int


@dataclass(frozen=True, slots=True)
class QueryPreferences:
    """What was learned of the items for one query (empty in a study without queries), best item first."""

    query_id: str
    items: tuple[ItemPreference, ...]


@dataclass(frozen=True, slots=True)
class ModelScore:
    """How well a model predicts answers that it did not learn from, in nats an answer.

    Attributes
    ----------
    behind, behind_standard_error
        By how much the best model's mean is larger, 0 for that one.
    """

    model: PreferenceModel
    log_probability: float
    standard_error: float
    behind: float
    behind_standard_error: float


@dataclass(frozen=True, slots=True)
class Respondent:
    """Somebody who is named with answers: how many they are, and how probably they were given at random."""

    respondent: str
    answered: int
    careless: float


@dataclass(frozen=True, slots=True)
class Preferences:
    """What was learned, for some of the queries.

    Attributes
    ----------
    answered
        How many answers it comes from, imported ones included, and declined ones left out.
    gathered
        As in `QuestionBatch`; 0 without a design.
    total
        How many queries there are, 1 in a study without queries.
    model
        What utilities were learned by.
    scores
        Of the models that the answers allow, best first; empty unless they were to be compared.
    compared
        How many answers were predicted for them.
    skipped, none_of_these
        How many answers were declined, and why.
    agreement, agreements
        The share of pairs of answers that order the same two items alike, and how many pairs there are.
    respondents
        Those that are named, at most `MAX_RESPONDENTS`, the most careless ones first.
    respondents_named
        How many there are.
    """

    answered: int
    gathered: float
    total: int
    queries: tuple[QueryPreferences, ...]
    model: PreferenceModel
    scores: tuple[ModelScore, ...] = ()
    compared: int = 0
    skipped: int = 0
    none_of_these: int = 0
    agreement: float = 0.0
    agreements: int = 0
    respondents: tuple[Respondent, ...] = ()
    respondents_named: int = 0
