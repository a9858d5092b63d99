"""How much exploration an estimate needs: the width that another uniform share would have given it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.learning.evaluation.estimators import QUANTILE
from topk_bandit.learning.evaluation.weights import pseudo_inverse_weights

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.slate_log import SlateLog
    from topk_bandit.learning.evaluation.targets import Target

__all__ = ["expected_margin"]


def expected_margin(log: SlateLog, target: Target, *, noise: float, uniform_share: float) -> float:
    """Return half the width that `doubly_robust` is expected to have on as many requests with another uniform share.

    Parameters
    ----------
    noise
        The mean square of what the model misses of rewards.
    uniform_share
        Above 0; the near share is as in the log, as far as there is room for it.
    """
    share = np.full(len(log), uniform_share)
    near = np.minimum(log.policy.near_share, 1.0 - share)
    policy = replace(log.policy, near_share=near, uniform_share=share)
    weights = pseudo_inverse_weights(replace(log, policy=policy), target)
    return QUANTILE * float(np.sqrt(weights.second_moments.mean() * noise / len(log)))
