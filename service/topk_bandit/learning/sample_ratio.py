r"""Whether groups are as large as they were asked to be: a test that may be looked at after every request.

Each of n requests is in the control group with the probability s that was asked for. If it were theta instead, the
odds would be the product of theta / s and (1 - theta) / (1 - s) over the requests. Their mean over theta ~ Beta(K s,
K (1 - s)),

    M(n) = B(K s + n_0, K (1 - s) + n_1) / (B(K s, K (1 - s)) s^n_0 (1 - s)^n_1),

is a martingale that begins at 1 if the share is s, so it ever reaches 1 / alpha with probability alpha at most, for
any n and any s (Lindon and Malek 2022, "Anytime-valid inference for multinomial count data").
"""

from __future__ import annotations

import math
from typing import NamedTuple

from topk_bandit.domain.errors import InvalidArgumentError

__all__ = ["RATIO_ERROR", "SampleRatio", "judge_sample_ratio"]

RATIO_ERROR = 0.001
"""alpha: of a thousand bandits whose groups are as asked, one is ever called odd."""

_CONCENTRATION = 1_000.0
"""K: a share that differs by a few hundredths is noticed soonest."""


class SampleRatio(NamedTuple):
    """How large the control group is beside what was asked.

    Attributes
    ----------
    share
        Part of the requests that are in the control group; None before the first.
    asked
        What it was to be.
    log_odds
        log M(n): 0 at the start; the larger, the less the share asked for can be true.
    is_odd
        Whether log M(n) is at least -log `RATIO_ERROR` now. Keep the first time: it may come back.
    """

    share: float | None
    asked: float
    log_odds: float
    is_odd: bool


def judge_sample_ratio(bandit_count: int, control_count: int, *, control_share: float) -> SampleRatio:
    """Return whether the control group has its share.

    Parameters
    ----------
    bandit_count, control_count
        How many were assigned to each group, each independently of the others: keys of callers rather than their
        requests if a key comes again and stays in its group.
    control_share
        In (0, 1): what was asked for, all the time.

    Raises
    ------
    InvalidArgumentError
        If the share is no such number, or a count is negative.
    """
    if not 0.0 < control_share < 1.0:
        raise InvalidArgumentError("control_share", f"expected a number between 0 and 1, got {control_share}")
    if min(bandit_count, control_count) < 0:
        raise InvalidArgumentError("count", f"expected no negative counts, got {bandit_count} and {control_count}")
    rest = 1.0 - control_share
    of_control, of_bandit = _CONCENTRATION * control_share, _CONCENTRATION * rest
    under_others = _log_beta(of_control + control_count, of_bandit + bandit_count) - _log_beta(of_control, of_bandit)
    as_asked = control_count * math.log(control_share) + bandit_count * math.log(rest)
    log_odds, count = under_others - as_asked, bandit_count + control_count
    share = control_count / count if count else None
    return SampleRatio(share, control_share, log_odds, log_odds >= -math.log(RATIO_ERROR))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
