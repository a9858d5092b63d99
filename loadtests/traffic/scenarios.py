"""All scenarios."""

from __future__ import annotations

from traffic.beyond import BURST, LOUD_TENANT, SWEEP
from traffic.one_rate import BANDITS_200, HOT_BANDIT, STEADY
from traffic.soaks import SOAK

__all__ = ["SCENARIOS"]

SCENARIOS = {one.name: one for one in (STEADY, SWEEP, BURST, LOUD_TENANT, SOAK, BANDITS_200, HOT_BANDIT)}
