from __future__ import annotations

import math

import numpy as np
import pytest

from topk_bandit.learning.acquisition import UpperConfidenceBound, paper_beta
from topk_bandit.learning.posterior import Moments


@pytest.mark.parametrize("beta", [0.0, 0.25, 4.0])
def test_the_upper_confidence_bound_is_mean_plus_root_beta_deviations(beta: float) -> None:
    moments = Moments(np.array([[0.0, 1.0], [-2.0, 3.0]]), np.array([[1.0, 0.0], [4.0, 0.25]]))
    root = math.sqrt(beta)
    expected = [[root, 1.0], [-2.0 + 2.0 * root, 3.0 + 0.5 * root]]
    np.testing.assert_allclose(UpperConfidenceBound(beta)(moments), expected)


@pytest.mark.parametrize("scale", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("round_number", [1, 2, 200])
def test_the_paper_s_beta_is_its_formula(scale: float, round_number: int) -> None:
    n_arms = 40 * math.perm(20, 3)
    expected = scale * math.log(n_arms * round_number**2 * math.pi**2)
    assert paper_beta(scale, log_n_arms=math.log(n_arms), round_number=round_number) == pytest.approx(expected)
