"""How much own slates may lose: conservative exploration, by what slates earned.

A conservative bandit keeps, at all times, what it has shown above (1 - alpha) of what the baseline would have earned on
the same requests (Wu, Shariff, Lattimore and Szepesvari 2016, "Conservative bandits", ICML; Kazerouni, Ghavamzadeh,
Abbasi-Yadkori and Van Roy 2017, "Conservative contextual linear bandits", NeurIPS). With N own slates, n requests and a
baseline that earns mu per request, that is

    R + (n - N) mu >= (1 - alpha) n mu,    or    R + (alpha n - N) mu >= 0,

where R is what own slates are expected to earn together. An own slate is shown where this holds after it for sure: by a
lower bound of the left side that is always valid (`confidence_sequences`). As in the second algorithm of Garcelon,
Ghavamzadeh, Lazaric and Pirotta (2020, "Improved algorithms for conservative exploration in bandits", AAAI), it is of
what slates earned, not of what a model expects: so it holds for a wrong model, too. The answer does not depend on the
request: baseline slates are those of any requests, and so are own ones.

R is also at least N times the least reward, which is 0 until a smaller one is seen. So until then alpha n own slates
are free, and the first are shown before anything is known. The larger one of both bounds counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.learning.confidence_sequences import errors_away
from topk_bandit.learning.lift import FEWEST_REQUESTS, pool_information

if TYPE_CHECKING:
    from topk_bandit.learning.group_totals import GroupTotals

__all__ = ["ERROR", "Arm", "find_reserve", "may_show_own"]

ERROR = 0.01
"""How probable it is that what was shown ever is expected to earn less than is promised."""

_EFFECT = 0.2
"""What bounds are narrowest for, in standard deviations of a reward: they have to be of use from some twenty slates
on."""


class Arm(NamedTuple):
    """The requests that got own slates, or baseline slates: how many there are, and what those earned that ended."""

    given: int
    earned: GroupTotals


def may_show_own(own: Arm, baseline: Arm, *, share: float, least: float) -> bool:
    """Return whether the next slate may be an own one.

    Parameters
    ----------
    own, baseline
        Since the share is promised.
    share
        alpha, in (0, 1).
    least
        The smallest reward so far, at most 0.
    """
    is_free = not least and own.given + 1 <= share * (own.given + baseline.given + 1)
    if is_free:
        return True
    reserve = find_reserve(own, baseline, share=share, least=least)
    return reserve is not None and reserve >= 0.0


def find_reserve(own: Arm, baseline: Arm, *, share: float, least: float) -> float | None:
    """Return how much what was shown earns for sure above what is promised, once the next slate is an own one.

    It is a sum of rewards, below 0 where that is not sure. None while fewer than `FEWEST_REQUESTS` baseline slates have
    ended, or all rewards are equal. The parameters are those of `may_show_own`.
    """
    known, ended = baseline.earned, own.earned.count
    if known.count < FEWEST_REQUESTS:
        return None
    spread = _spread_of(own.earned, known)
    if spread <= 0.0:
        return None
    given = own.given + 1
    weight = share * (given + baseline.given) - given
    reach = _errors_away(known.count) * spread / math.sqrt(known.count)
    reserve = least * given + weight * known.mean - abs(weight) * reach
    if ended <= 0:
        return reserve
    # Those that have not ended may have earned the least: of those that were shown lately only good ones have.
    earned = own.earned.mean * ended + least * (given - ended)
    reach = _errors_away(pool_information(ended, known.count)) * spread * math.sqrt(ended + weight**2 / known.count)
    return max(reserve, earned + weight * known.mean - reach)


def _spread_of(own: GroupTotals, baseline: GroupTotals) -> float:
    """Return the standard deviation of rewards: that of both together, or of baseline slates if that is larger."""
    together = (own.squared_deviations + baseline.squared_deviations) / (own.count + baseline.count - 1)
    return math.sqrt(max(float(together), baseline.variance))


def _errors_away(information: float) -> float:
    """Return how many standard errors an estimate is from the truth, for either of two bounds."""
    return errors_away(information, error=ERROR / 2.0, effect=_EFFECT)
