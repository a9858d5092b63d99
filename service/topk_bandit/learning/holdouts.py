"""How many requests it takes to decide what a bandit earns beside a control group.

In the limit of many requests the difference of the means is normal, and away from the truth by its standard error
times a normal number. It is decided once it is farther from 0 than its confidence sequence reaches
(`confidence_sequences`). It is at one number of requests with the probability that follows, and may have been before,
which only adds to that.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from topk_bandit.learning.confidence_sequences import check_confidence, errors_away
from topk_bandit.learning.lift import FEWEST_REQUESTS, pool_information

__all__ = ["POWER", "count_requests"]

POWER = 0.8
"""The probability with which it is decided after the requests that are counted here."""

_MOST_REQUESTS = 1e15


def count_requests(lift: float, *, mean: float, spread: float, control_share: float, confidence: float = 0.95) -> float:
    """Return after how many requests of both groups a lift is decided with the probability `POWER`, or sooner.

    Parameters
    ----------
    lift
        The part by which the bandit's group earns more per request than the control group, above 0.
    mean, spread
        Mean and standard deviation of what single requests of the control group earn, above 0.
    control_share
        In (0, 1): the part of the requests in the control group.
    confidence
        Of the interval of the lift, in [0.5, 1).

    Returns
    -------
    requests
        At least as many as give each group the fewest that an interval needs; infinity for more than 10^15.
    """
    check_confidence(confidence)
    error, quantile = (1.0 - confidence) / 2.0, NormalDist().inv_cdf(POWER)
    information = pool_information(1.0 - control_share, control_share)
    errors = lift * mean / _standard_error(lift, mean, spread, control_share)

    def is_enough(requests: float) -> bool:
        return errors * math.sqrt(requests) >= errors_away(information * requests, error=error) + quantile

    low = high = FEWEST_REQUESTS / min(control_share, 1.0 - control_share)
    while not is_enough(high):
        low, high = high, 2.0 * high
        if high > _MOST_REQUESTS:
            return math.inf
    while high - low > 0.5:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return float(math.ceil(high))


def _standard_error(lift: float, mean: float, spread: float, control_share: float) -> float:
    """Return the standard error of the difference of the groups' means after one request, as `lift` estimates it.

    More requests of the bandit's group earn something, and that is of the same size: so the mean of squares grows as
    the mean does. For rewards of 0 and 1 this is exact.
    """
    grown = (1.0 + lift) * (spread**2 + mean**2) - ((1.0 + lift) * mean) ** 2
    of_bandit = max(grown, spread**2)
    of_both = control_share * spread**2 + (1.0 - control_share) * of_bandit
    return math.sqrt(of_bandit / (1.0 - control_share) + of_both / control_share)
