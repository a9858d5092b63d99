r"""How far from the truth a mean may be at any time: bounds that hold after every request at once.

An interval of 95 % that is looked at after each request leaves out the truth sooner or later, nearly surely. A
confidence sequence holds it at all times at once with that probability, so that one may stop whenever one likes.

S(t) is a standardised sum with information t. Without an effect it is a Brownian motion in the limit of many
requests, whatever the distribution of rewards, and whatever their means do meanwhile (Waudby-Smith, Arbour, Sinha,
Kennedy and Ramdas 2024, "Time-uniform central limit theory and asymptotic confidence sequences", Annals of Statistics
52). For each effect e, exp(e S - e^2 t / 2) is a martingale that begins at 1, and so is its mean over e ~ N(m, m^2),

    M(t) = (1 + m^2 t)^(-1/2) exp(((1 + m S)^2 / (1 + m^2 t) - 1) / 2).

By Ville's inequality it ever reaches 1 / alpha with probability alpha at most. Solved for S > 0 that is

    S(t) >= (sqrt((1 + m^2 t) (1 + 2 log(sqrt(1 + m^2 t) / alpha))) - 1) / m.

An effect of either sign has alpha / 2 on each side.
"""

from __future__ import annotations

import math

from topk_bandit.domain.errors import InvalidArgumentError

__all__ = ["EXPECTED_EFFECT", "check_confidence", "errors_away"]

EXPECTED_EFFECT = 0.05
"""m, in standard deviations of a reward: effects of about this size are decided soonest.

Decision 80 has how long effects of other sizes take, with this m and with others."""


def errors_away(information: float, *, error: float, effect: float = EXPECTED_EFFECT) -> float:
    """Return how many standard errors an estimate is from the truth on one side, at all times at once.

    Parameters
    ----------
    information
        t > 0: the number of rewards of variance 1 whose mean has the estimate's standard error.
    error
        alpha, in (0, 1): how probable it is that the estimate is ever farther away on that side.
    effect
        m > 0.
    """
    scaled = effect * effect * information
    log_bound = 0.5 * math.log1p(scaled) - math.log(error)
    return (math.sqrt((1.0 + scaled) * (1.0 + 2.0 * log_bound)) - 1.0) / math.sqrt(scaled)


def check_confidence(confidence: float) -> None:
    """Raise `InvalidArgumentError` for a confidence that is not in [0.5, 1)."""
    if not 0.5 <= confidence < 1.0:
        raise InvalidArgumentError("confidence", f"expected at least 0.5 and less than 1, got {confidence}")
