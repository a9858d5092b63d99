"""What a slate is worth trying: functions of posterior mean and variance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.context_posterior import Moments

__all__ = ["UpperConfidenceBound", "paper_beta"]


@dataclass(frozen=True, slots=True)
class UpperConfidenceBound:
    """mean + sqrt(beta) * standard deviation (paper, Section 4)."""

    beta: float

    def __call__(self, moments: Moments, /) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        return np.asarray(moments.mean + math.sqrt(self.beta) * np.sqrt(moments.variance))


def paper_beta(scale: float, *, log_n_arms: float, round_number: int) -> float:
    """Return beta_t = scale * log(|X| t^2 pi^2) (Appendix C.2).

    Parameters
    ----------
    scale
        beta_gp; the paper tries 0.05, 0.1 and 0.5.
    log_n_arms
        log |X|, with |X| = |contexts| x |rankings|.
    round_number
        t, from 1.
    """
    return scale * (log_n_arms + 2.0 * math.log(round_number) + 2.0 * math.log(math.pi))
