"""Enumerations of slates and their rewards on the wire."""

from __future__ import annotations

from topk_bandit.domain.slates import ActivationOutcome, RewardOutcome
from topk_bandit.domain.stages import Group
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.wire.forms import Enumeration

__all__ = ["ACTIVATIONS", "GROUPS", "OUTCOMES"]

OUTCOMES = Enumeration(RewardOutcome, pb.RewardOutcome)
ACTIVATIONS = Enumeration(ActivationOutcome, pb.ActivationOutcome)
GROUPS = Enumeration(Group, pb.Group, unset=Group.NONE)
