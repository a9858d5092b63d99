"""Conservative bandits in made shops: where they are worse than the shop they lose little, elsewhere they gain.

``LONG_TESTS=1 pytest -s tests/bandits/test_conservative_shops.py`` prints the figures of decision 94, from 100 shops.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.bandits.conservative_shops import Shop, play
from tests.long_forms import LONG, usual_or_long

SHARE = 0.1
WORSE = ("hidden", "best", "rare", "weekly")


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.timeout(1800)
def test_where_a_bandit_is_worse_a_conservative_one_loses_no_more_than_its_share() -> None:
    shops, visits = usual_or_long((1, 500), long=(25, 1200))
    for kind in WORSE:
        played = [play(Shop(seed, kind), visits, share=SHARE) for seed in range(shops)]
        worst = [one.worst for one in played]
        n_held, shown = sum(one >= 1.0 - SHARE for one in worst), np.mean([one.is_baseline.mean() for one in played])
        print(f"{kind}: {n_held} of {shops} hold, the worst has {min(worst):.3f}; {shown:.0%} baseline slates")
        assert n_held == shops


@pytest.mark.slow
@pytest.mark.long_form
@pytest.mark.timeout(1800)
def test_where_a_bandit_is_better_most_of_the_gain_is_kept() -> None:
    shops, visits = usual_or_long((1, 1200), long=(8, 4000))
    kept, free = ([play(Shop(seed, "better"), visits, share=one) for seed in range(shops)] for one in (SHARE, 0.0))
    for last in range(visits // 4, visits + 1, visits // 4):
        gains = [sum(float(np.sum((one.shown - one.baseline)[:last])) for one in played) for played in (kept, free)]
        print(f"after {last} visits: {gains[0]:.0f} of {gains[1]:.0f} is kept, {gains[0] / gains[1]:.2f}")
    assert gains[0] > (0.85 if LONG else 0.5) * gains[1]
    assert min(one.worst for one in kept) >= 1.0 - SHARE
