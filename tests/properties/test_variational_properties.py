"""What holds for every variational posterior, whatever the items, answers and prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.long_forms import examples

from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.models.variational import Bound, fit
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOUNDS = st.sampled_from(list(Bound))


class Asked(NamedTuple):
    features: NDArray[np.float64]
    orderings: Orderings
    prior: Gaussian


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    """Features of any rank, equal items among them; mixed answers of all kinds; a prior that may be narrow or wide."""
    n, d = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    numbers = st.floats(-30.0, 30.0, width=32)
    features = draw(arrays.arrays(np.float64, (n, d), elements=numbers))
    answer = st.permutations(range(n)).flatmap(lambda order: st.integers(2, n).map(lambda size: order[:size]))
    orders = draw(st.lists(answer, min_size=1, max_size=12))
    places = [draw(st.integers(1, len(order) - 1)) for order in orders]
    starts = np.concatenate([[0], np.cumsum([len(order) for order in orders])])
    orderings = Orderings(np.concatenate(orders).astype(np.int64), starts.astype(np.int64), np.array(places))
    root = draw(arrays.arrays(np.float64, (d, d), elements=st.floats(-2.0, 2.0, width=32)))
    variance = 10.0 ** draw(st.integers(-3, 3))
    covariance = variance * (root @ root.T + 0.1 * np.eye(d))
    return Asked(features, orderings, Gaussian(draw(arrays.arrays(np.float64, d, elements=numbers)) / 10.0, covariance))


def rounding(bounds: NDArray[np.float64]) -> float:
    return 1e-9 * float(1.0 + np.abs(bounds).max())


@pytest.mark.slow
@given(asked(), BOUNDS)
def test_the_bound_never_falls_and_stays_below_certainty(given_: Asked, bound: Bound) -> None:
    found = fit(given_.features, given_.orderings, prior=given_.prior, bound=bound, max_sweeps=60)
    assert np.isfinite(found.bounds).all()
    assert (np.diff(found.bounds) >= -rounding(found.bounds)).all()
    assert found.bound <= rounding(found.bounds)  # the log of a probability


@settings(max_examples=examples(12))
@given(asked(), BOUNDS)
def test_answers_narrow_the_posterior_in_every_direction(given_: Asked, bound: Bound) -> None:
    found = fit(given_.features, given_.orderings, prior=given_.prior, bound=bound, max_sweeps=60).posterior
    lower = np.linalg.cholesky(given_.prior.covariance)
    inverse = np.linalg.inv(lower)
    ratios = np.linalg.eigvalsh(inverse @ found.covariance @ inverse.T)
    assert ratios.min() > 0.0
    assert ratios.max() <= 1.0 + 1e-7


@given(asked(), BOUNDS, st.data())
def test_names_of_items_do_not_matter(given_: Asked, bound: Bound, data: st.DataObject) -> None:
    names = np.array(data.draw(st.permutations(range(len(given_.features)))))
    renamed = np.empty_like(given_.features)
    renamed[names] = given_.features
    orderings = Orderings(names[given_.orderings.items], given_.orderings.starts, given_.orderings.places)
    one = fit(given_.features, given_.orderings, prior=given_.prior, bound=bound, max_sweeps=5)
    other = fit(renamed, orderings, prior=given_.prior, bound=bound, max_sweeps=5)
    np.testing.assert_allclose(other.bounds, one.bounds, rtol=1e-9, atol=1e-9)
