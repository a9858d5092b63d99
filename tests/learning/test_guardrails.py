"""A bandit is called worse where numpy's upper bound is below the margin's, and hardly ever without a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.learning.groups import REWARDS, reach, totals_of, watch

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.group_totals import NO_REQUESTS
from topk_bandit.learning.guardrails import GuardrailState, decide_guardrail


@pytest.mark.parametrize("level", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("margin", [0.0, 0.1, 1.5])
@pytest.mark.parametrize("fall", [0.0, 0.5, 2.0])
def test_it_is_worse_where_the_upper_bound_is_below_the_margin(level: float, margin: float, fall: float) -> None:
    rng = np.random.default_rng(3)
    bandit, control = rng.normal(level - fall, 1.0, 900), rng.normal(level, 0.5, 300)
    state = decide_guardrail(totals_of(bandit), totals_of(control), margin=margin, confidence=0.9)
    m1, m0 = bandit.mean(), control.mean()
    together = (bandit.var() * 900 + control.var() * 300) / 1_198
    v1, v0 = (max(together, one.var(ddof=1)) / len(one) for one in (bandit, control))
    away = float(reach(np.array(225.0), 0.1))
    uppers = [m1 - part * m0 + away * math.hypot(v1**0.5, part * v0**0.5) for part in (1 - margin, 1 + margin)]
    assert state.highest_gain == pytest.approx(max(uppers))
    assert state.is_worse == all(upper < 0.0 for upper in uppers)
    assert state.shortfall == pytest.approx((m0 - m1) / abs(m0))
    if (fall, margin) == (2.0, 0.1):
        assert state.is_worse


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clicks", "baskets", "normal"])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_a_bandit_at_the_margin_is_hardly_ever_called_worse(kind: str, share: float) -> None:
    """The bandit earns exactly the margin less, which is allowed: 1,000 shops, asked after every request."""
    rng, called, margin = np.random.default_rng(4), 0, 0.2
    level = 0.5 if kind == "normal" else 0.0
    for _ in range(20):
        in_control = rng.random((50, 10_000)) < share
        control, bandit = (REWARDS[kind](rng, in_control.shape) + level for _ in range(2))
        watched = watch(np.where(in_control, control, (1.0 - margin) * bandit), in_control)
        below = [watched.errors(part) < -reach(watched.information, 0.05) for part in (1.0 - margin, 1.0 + margin)]
        called += int((below[0] & below[1]).any(axis=1).sum())
    print(f"{kind}, control {share}: {called} of 1000 are ever called worse")
    assert called <= 50


def test_a_bandit_that_is_worse_is_called_so_in_time() -> None:
    """Clicks at 6 % instead of 10, margin a tenth: half of the shops within 3,000 requests, all within 20,000."""
    rng, after = np.random.default_rng(6), []
    for _ in range(4):
        in_control = rng.random((50, 20_000)) < 0.5
        rewards = (rng.random(in_control.shape) < np.where(in_control, 0.1, 0.06)).astype(float)
        watched = watch(rewards, in_control)
        below = watched.errors(0.9) < -reach(watched.information, 0.05)
        assert below.any(axis=1).all()
        after += (below.argmax(axis=1) + 1).tolist()
        first = int(below[0].argmax()) + 1
        for count, is_worse in ((first, True), (first - 1, False)):
            mask = in_control[0, :count]
            bandit, control = totals_of(rewards[0, :count][~mask]), totals_of(rewards[0, :count][mask])
            assert decide_guardrail(bandit, control, margin=0.1).is_worse is is_worse
    assert np.median(after) <= 3_000


def test_a_control_group_that_earns_nothing_has_no_shares() -> None:
    """What is lost of nothing has no size; that it is lost is seen all the same."""
    control = totals_of([1.0, -1.0] * 200)
    state = decide_guardrail(totals_of([-2.0, -1.0] * 200), control, margin=0.5)
    assert (state.is_worse, state.shortfall) == (True, None)


def test_it_is_too_early_with_few_requests() -> None:
    early = GuardrailState(is_worse=False, shortfall=None, highest_gain=None)
    assert decide_guardrail(NO_REQUESTS, NO_REQUESTS, margin=0.0) == early
    assert decide_guardrail(totals_of([0.0] * 500), totals_of([1.0] * 99), margin=0.0) == early


@pytest.mark.parametrize("margin", [-0.01, float("nan"), float("inf")])
def test_another_margin_is_refused(margin: float) -> None:
    with pytest.raises(InvalidArgumentError, match="margin"):
        decide_guardrail(NO_REQUESTS, NO_REQUESTS, margin=margin)


def test_another_confidence_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="confidence"):
        decide_guardrail(NO_REQUESTS, NO_REQUESTS, margin=0.1, confidence=1.0)
