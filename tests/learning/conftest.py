"""What several tests of the mathematics set up."""

from __future__ import annotations

import pytest


@pytest.fixture
def without_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the upper confidence bound alone, so that the search can be compared with its optimum."""
    monkeypatch.setattr("topk_bandit.learning.decisions.DRAW_WIDTH", 0.0)
    monkeypatch.setattr("topk_bandit.learning.decisions.SLOPE_DRAW_WIDTH", 0.0)
