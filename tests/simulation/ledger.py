"""The calls that callers made, and the responses: the evidence on which the service is judged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.domain.studies import Answer, PastAnswer, QuestionBatch
    from topk_bandit.store.events import PastSlate

__all__ = [
    "Activation",
    "Asked",
    "Correction",
    "Deletion",
    "Ledger",
    "Posted",
    "Questioned",
    "Response",
    "SentAnswer",
    "SentRows",
    "Sought",
]


class Response(StrEnum):
    """How a call ended for its caller."""

    NOTHING = "nothing"
    ANSWER = "an answer"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


@dataclass
class Asked:
    """One call of `Recommend`.

    Attributes
    ----------
    began_at, ended_at
        Virtual seconds.
    response
        NOTHING until it arrives, and for ever when the caller gave up or the worker died.
    failovers
        How many there had been when the response arrived.
    """

    number: int
    request_id: str
    worker: int
    began_at: float
    response: Response = Response.NOTHING
    answer: Recommendation | None = None
    ended_at: float = 0.0
    failovers: int = 0


@dataclass
class Posted:
    """One call of `Reward`; `outcome` is that of the receipt, or the word of a refusal, "" for neither.

    `reward_id` and `final` are as the bandit takes them: where a slate has one reward, "" and True.
    """

    number: int
    recommendation_id: str
    value: float
    began_at: float
    reward_id: str = ""
    final: bool = True
    item_values: Mapping[str, float] = field(default_factory=dict)
    response: Response = Response.NOTHING
    outcome: str = ""
    position: int = 0
    failovers: int = 0


@dataclass
class Activation:
    """One call of `Activate`; `shown` is empty for the recommended slate, and `outcome` as that of `Posted`."""

    number: int
    recommendation_id: str
    shown: tuple[str, ...]
    response: Response = Response.NOTHING
    outcome: str = ""
    position: int = 0


@dataclass
class Correction:
    """One call of `AmendReward`, or with the value None of `VoidReward`; `outcome` is as that of `Posted`."""

    number: int
    recommendation_id: str
    reward_id: str
    value: float | None
    item_values: Mapping[str, float] = field(default_factory=dict)
    response: Response = Response.NOTHING
    outcome: str = ""
    position: int = 0


@dataclass
class SentRows:
    """One call of `ImportObservations` or `ImportAnswers`; `outcome` is "accepted", or the word of a refusal.

    Attributes
    ----------
    rows
        As the log has those that are taken.
    skips
        Whether rows that can't be taken are left out.
    """

    number: int
    import_id: str
    first_row: int
    rows: tuple[PastSlate | PastAnswer, ...]
    skips: bool
    began_at: float
    response: Response = Response.NOTHING
    outcome: str = ""
    accepted: int = 0
    position: int = 0
    ended_at: float = 0.0

    @property
    def next_row(self) -> int:
        """The row after the last one."""
        return self.first_row + len(self.rows)


@dataclass
class Sought:
    """One call of `GetImport` that was answered: how far the import is."""

    number: int
    import_id: str
    began_at: float
    next_row: int
    accepted: int


@dataclass
class Questioned:
    """One call of `GetNextQuestions`."""

    number: int
    request_id: str
    count: int
    response: Response = Response.NOTHING
    batch: QuestionBatch | None = None
    outcome: str = ""


@dataclass
class SentAnswer:
    """One answer that was sent, by places in the question's list; `outcome` is as that of `Posted`."""

    number: int
    question_id: str
    answer: Answer
    began_at: float
    response: Response = Response.NOTHING
    outcome: str = ""


@dataclass
class Deletion:
    """One call of `DeleteStudy`."""

    number: int
    began_at: float
    response: Response = Response.NOTHING


@dataclass
class Ledger:
    """All calls of a run.

    Attributes
    ----------
    added
        The items that were added, with the time of the response.
    leaving
        Those that somebody has asked to retire.
    retired
        Those that were retired, with the time of the response.
    """

    asked: dict[str, list[Asked]] = field(default_factory=lambda: defaultdict(list))
    posted: dict[str, list[Posted]] = field(default_factory=lambda: defaultdict(list))
    activated: dict[str, list[Activation]] = field(default_factory=lambda: defaultdict(list))
    corrected: dict[str, list[Correction]] = field(default_factory=lambda: defaultdict(list))
    imports: dict[str, list[SentRows]] = field(default_factory=lambda: defaultdict(list))
    sought: list[Sought] = field(default_factory=list)
    questioned: dict[str, list[Questioned]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[SentAnswer]] = field(default_factory=lambda: defaultdict(list))
    deletions: list[Deletion] = field(default_factory=list)
    added: dict[str, float] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    retired: dict[str, float] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    def newest_answers(self) -> list[Asked]:
        """Return, of each request, the call that was answered last, in the order of the requests."""
        newest = []
        for calls in self.asked.values():
            answered = [call for call in calls if call.answer is not None and call.answer.recommendation_id]
            newest += [max(answered, key=lambda call: call.ended_at)] if answered else []
        return newest
