from __future__ import annotations

import pytest

from topk_bandit.rpc.interceptors import _code_of_cancellation


@pytest.mark.parametrize(
    ("remaining", "elapsed", "code"),
    [
        (None, 1.0, "CANCELLED"),
        (0.0, 1.0, "DEADLINE_EXCEEDED"),
        (0.04, 1.0, "DEADLINE_EXCEEDED"),
        (0.06, 1.0, "CANCELLED"),
        (0.1, 10.0, "DEADLINE_EXCEEDED"),
        (0.2, 10.0, "CANCELLED"),
        (0.9, 100.0, "DEADLINE_EXCEEDED"),
        (1.2, 100.0, "CANCELLED"),
    ],
)
def test_why_a_client_stopped_waiting(remaining: float | None, elapsed: float, code: str) -> None:
    assert _code_of_cancellation(remaining, elapsed=elapsed).name == code
