"""Studies on the wire."""

from __future__ import annotations

from topk_bandit.domain.studies import AnswerKind, AnswerOutcome, DesignProgress, DesignState
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.wire.forms import Enumeration, Form

__all__ = ["KINDS", "OUTCOMES", "PROGRESS", "STATES"]

KINDS = Enumeration(AnswerKind, pb.AnswerKind)
STATES = Enumeration(DesignState, pb.StudyState)
OUTCOMES = Enumeration(AnswerOutcome, pb.AnswerOutcome)
PROGRESS = Form(DesignProgress, pb.DesignProgress)
