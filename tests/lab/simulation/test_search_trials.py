from __future__ import annotations

import numpy as np
import pytest

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.maximisers import Climbed, Step
from topk_bandit.lab.simulation.search_trials import search_of_paper, search_of_service, search_trial
from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.rankings import all_rankings


@pytest.mark.parametrize("search", [search_of_paper, search_of_service])
@pytest.mark.parametrize("kind", [Kernel.CONVOLUTIONAL, Kernel.WEIGHTED_CONVOLUTIONAL])
def test_both_searches_find_what_is_hidden(kind: Kernel, search: object) -> None:
    trials = [search_trial(kind, search, np.random.default_rng(seed)) for seed in range(5)]  # type: ignore[arg-type]
    assert all(trial.found for trial in trials)
    for trial in trials:
        assert trial.similarity == pytest.approx(1.0)
        assert trial.steps[-1].value == pytest.approx(1.0, abs=1e-5)


def test_a_search_that_ends_elsewhere_has_not_found_it() -> None:
    trial = search_trial(
        Kernel.CONVOLUTIONAL,
        lambda _landscape, _rng: Climbed(np.arange(6, dtype=np.int32), (Step(1, 0.0),)),
        np.random.default_rng(0),
    )
    assert not trial.found
    assert trial.similarity < 1.0


@pytest.mark.parametrize("kind", Kernel)
@pytest.mark.parametrize("size", [2, 3])
def test_nothing_else_is_as_similar(kind: Kernel, size: int) -> None:
    every = all_rankings(np.arange(6), slate_size=size)
    kernel = kernel_of(kind, 6, size)
    similar = kernel.gram(every[17], every)[0] > kernel.variance - 1e-9
    assert np.flatnonzero(similar).tolist() == [17]


def test_a_search_sees_nothing_but_similarities() -> None:
    """The at_context that a search is given is the similarity to one ranking, and that ranking is the best of all."""
    seen = {}

    def look(at_context: object, rng: np.random.Generator) -> Climbed:
        every = all_rankings(np.arange(6), slate_size=3)
        seen["means"] = at_context.means(every)  # type: ignore[attr-defined]
        return Climbed(every[int(np.argmax(seen["means"]))], (Step(120, float(seen["means"].max())),))

    trial = search_trial(Kernel.WEIGHTED, look, np.random.default_rng(2), n_items=6, slate_size=3)
    every = all_rankings(np.arange(6), slate_size=3)
    best = every[int(np.argmax(seen["means"]))]
    np.testing.assert_allclose(seen["means"], kernel_of(Kernel.WEIGHTED, 6, 3).gram(best, every)[0], atol=1e-12)
    assert trial.found


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="slate_size"):
        search_trial(Kernel.WEIGHTED, search_of_paper, np.random.default_rng(0), slate_size=1)
