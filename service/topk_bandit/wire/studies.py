"""Studies on the wire."""

from __future__ import annotations

from topk_bandit.domain.studies import (
    AnswerKind,
    AnswerOutcome,
    DeclineReason,
    DesignProgress,
    DesignState,
    ItemPreference,
    LinkPage,
    LinkQuestion,
    LinkSettings,
    LinkState,
    ModelScore,
    PreferenceModel,
    Preferences,
    QueryPreferences,
    Question,
    QuestionBatch,
    Respondent,
    StudyItem,
    StudyLink,
    StudyQuery,
)
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.wire.forms import MILLISECONDS, Enumeration, Form

__all__ = [
    "DECLINE_REASONS",
    "ITEM",
    "KINDS",
    "LINK",
    "LINK_PAGE",
    "LINK_STATES",
    "LINK_TEXTS",
    "MODELS",
    "MODEL_SCORE",
    "OUTCOMES",
    "PREFERENCES",
    "PROGRESS",
    "QUERY",
    "QUESTIONS",
    "STATES",
]

DECLINE_REASONS = Enumeration(DeclineReason, pb.DeclineReason)
KINDS = Enumeration(AnswerKind, pb.AnswerKind)
MODELS = Enumeration(PreferenceModel, pb.PreferenceModel)
STATES = Enumeration(DesignState, pb.StudyState)
LINK_STATES = Enumeration(LinkState, pb.LinkState)
OUTCOMES = Enumeration(AnswerOutcome, pb.AnswerOutcome)
PROGRESS = Form(DesignProgress, pb.DesignProgress)
ITEM = Form(StudyItem, pb.StudyItem)
QUERY = Form(StudyQuery, pb.StudyQuery)
QUESTIONS = Form(QuestionBatch, pb.NextQuestionsResponse, parts={"questions": Form(Question, pb.Question)})
LINK_TEXTS = Form(LinkSettings, pb.StudyLink, names={"expire_ms": "expire_time"}, parts={"expire_ms": MILLISECONDS})
LINK = Form(
    StudyLink,
    pb.StudyLink,
    names={"created_ms": "create_time", "last_answer_ms": "last_answer_time"},
    parts={"created_ms": MILLISECONDS, "last_answer_ms": MILLISECONDS},
    beside={"digest", "settings", "revoked"},
)
LINK_PAGE = Form(
    LinkPage,
    pb.GetLinkQuestionsResponse,
    parts={"answer_kind": KINDS, "questions": Form(LinkQuestion, pb.LinkQuestion, parts={"items": ITEM})},
    beside={"link"},
)
_OF_QUERY = Form(QueryPreferences, pb.QueryPreferences, parts={"items": Form(ItemPreference, pb.ItemPreference)})
_RESPONDENT = Form(Respondent, pb.Respondent, names={"answered": "answered_count", "careless": "careless_probability"})
MODEL_SCORE = Form(ModelScore, pb.ModelScore, parts={"model": MODELS})
PREFERENCES = Form(
    Preferences,
    pb.GetPreferencesResponse,
    names={"queries": "preferences", "respondents_named": "respondent_count"},
    parts={"queries": _OF_QUERY, "model": MODELS, "scores": MODEL_SCORE, "respondents": _RESPONDENT},
    beside={"total"},
)
