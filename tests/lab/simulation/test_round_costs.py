from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.lab.paper.approaches import KernelApproach
from topk_bandit.lab.paper.work import Work
from topk_bandit.lab.simulation import round_costs
from topk_bandit.lab.simulation.round_costs import (
    DEFAULT_SERVICE,
    FEATURE,
    FEW_ROWS_SERVICE,
    KERNEL,
    METHODS,
    Size,
    costs,
)
from topk_bandit.learning.kendall import weighted_convolutional_kendall


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_costs_and_to_look_costs_nothing(method: str) -> None:
    every = costs(method, [3, 0], marks=(6, 12, 24))
    assert every.shape == (4, 3)
    assert (every > 0).all()
    np.testing.assert_array_equal(costs(method, [3, 0], marks=(24,))[:, 0], every[:, -1])
    np.testing.assert_array_equal(costs(method, [3, 0], marks=(6, 12, 24)), every)


def test_costs_are_those_of_the_rounds() -> None:
    work, size, rounds = Work(), Size(context_dim=2, slate_size=3), 10
    kernel = weighted_convolutional_kendall(round_costs.N_ITEMS, 3)
    approach = KernelApproach(
        kernel,
        work,
        context_dim=2,
        noise_variance=round_costs.NOISE_VARIANCE,
        capacity=rounds,
        iterations=round_costs.ITERATIONS,
    )
    updates = []
    for context, slates, reward in round_costs._stream([1], size, rounds):
        approach.moments(context, slates[1:])
        before = work.count
        approach.update(context, slates[0], reward)
        updates.append(work.count - before)
    compute, memory, mvm, update = costs(KERNEL, [1], marks=(rounds,), size=size)[:, 0]
    assert compute == work.count
    assert memory == 8 * rounds * rounds
    assert mvm == rounds * rounds
    assert update == np.mean(updates[5:])


def test_the_service_predicts_in_place_of_a_product() -> None:
    small, large = costs(DEFAULT_SERVICE, [1], marks=(20, 40))[2]
    # n^2 for M k_x; kernel values and contexts take O(n) more.
    assert 20 * 20 < small < 20 * 20 + 60 * 20
    assert 40 * 40 < large < 40 * 40 + 60 * 40


def test_limits_matter_once_they_are_reached() -> None:
    few, default = (costs(name, [2], marks=(64, 512)) for name in (FEW_ROWS_SERVICE, DEFAULT_SERVICE))
    np.testing.assert_array_equal(few[:, 0], default[:, 0])
    assert (few[:2, 1] < default[:2, 1]).all()


def test_sizes_are_what_the_feature_approach_grows_with() -> None:
    one, two = (costs(FEATURE, [2], marks=(5,), size=Size(context_dim=c)) for c in (1, 2))
    assert two[1, 0] == 2 * one[1, 0]
    assert two[2, 0] == 2 * one[2, 0]
    small = costs(FEATURE, [2], marks=(5,), size=Size(slate_size=3))
    # 2 k + 1 + k (k - 1) / 2 numbers a slate.
    assert small[1, 0] / costs(FEATURE, [2], marks=(5,))[1, 0] == 10 / 28
