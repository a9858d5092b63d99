"""Plain values to fill a store of studies with."""

from __future__ import annotations

from topk_bandit.domain.studies import (
    AnswerKind,
    AnswersImported,
    ChoiceAnswer,
    DesignChosen,
    DesignProgress,
    LinkCreated,
    LinkSettings,
    PastAnswer,
    QuestionList,
    RankingAnswer,
    RatingsAnswer,
    StudyDesign,
    StudyItem,
    StudyName,
    StudyQuery,
    StudySettings,
)
from topk_bandit.store.log import ImportPart

__all__ = ["CHOSEN", "DESIGN", "LEASE_MS", "LINK", "PROGRESS", "STUDY", "answers", "imported", "study_settings"]

STUDY = StudyName(tenant="shop", study="taste")
LEASE_MS = 60_000
PROGRESS = DesignProgress(steps=7, log_det=-1.5, gap=1 / 3, target_gap=0.02)
DESIGN = StudyDesign(
    lists=(QuestionList(0, (0, 1)), QuestionList(1, (2, 1))),
    weights=(0.1 + 0.2, 0.7),
    log_det=2.0**0.5,
    gap=1e-17,
    target_gap=0.02,
    steps=12,
)
CHOSEN = DesignChosen(1, DESIGN)
LINK = LinkCreated("l1", "ab" * 32, LinkSettings(5, 3, 2_000_000_000_000, "Tea \u00e9", text_color="#000000"))


def study_settings(*, budget: int = 5, kind: AnswerKind = AnswerKind.RANKING) -> StudySettings:
    return StudySettings(
        items=(
            StudyItem("apple", (0.1, -2.5)),
            StudyItem("pear", (1e-17, 0.0)),
            StudyItem('"plum"\\ \u00e9', (3.0, 1 / 3)),
        ),
        queries=(StudyQuery("now", (1.0,)), StudyQuery("later", (-1e300,))),
        answer_kind=kind,
        list_size=2,
        budget=budget,
    )


def answers() -> list[RatingsAnswer | RankingAnswer | ChoiceAnswer]:
    return [RatingsAnswer((0.1, -0.0)), RankingAnswer((1, 0)), ChoiceAnswer(1)]


def imported(
    first_row: int = 0, count: int = 2, *, import_id: str = "old", fingerprint: str = "ab"
) -> tuple[ImportPart, AnswersImported]:
    """Return a part of an import of answers that were given elsewhere."""
    past = tuple(
        PastAnswer(QuestionList(row % 2, (0, 2)), RankingAnswer((row % 2, 1 - row % 2))) for row in range(count)
    )
    part = ImportPart(import_id, first_row, first_row + count, fingerprint, accepted=count)
    return part, AnswersImported(import_id, first_row, past)
