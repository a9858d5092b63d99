"""Programs of the documentation among tests, where a machine may be slow: their clients wait for as long as a test."""

from __future__ import annotations

from tests.waiting import PATIENCE

__all__ = ["PATIENT_CLIENTS", "WITHOUT_CHANCE"]

PATIENT_CLIENTS = f"""
from topk_bandit.client import AsyncClient, Client
for kind in (AsyncClient, Client):
    kind.__init__.__kwdefaults__["timeout"] = {PATIENCE}
"""
"""What a program begins with in a test."""

WITHOUT_CHANCE = ("--uniform-share=1e-9", "--near-share=0", "--store-timeout-seconds=60")
"""Flags of a service whose slates follow from its rewards: what is drawn follows from ids, which are random.

With a share of 0 its log could not be evaluated.
"""
