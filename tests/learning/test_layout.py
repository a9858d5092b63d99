"""A state does not depend on how the arrays that it is made of lie in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learning.believed import Utilities
from tests.learning.dense import WCK
from tests.learning.happenings import CONTEXT_DIM, KERNEL, N_ITEMS, SLATE_SIZE, folded, happenings, initial

from topk_bandit.learning._layout import lay_out
from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.posterior import PendingSlates
from topk_bandit.learning.prior_mean import PriorMean

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from numpy.typing import NDArray

    Layout: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

pytestmark = pytest.mark.bits

LIMITS = Limits(rows=60, pending_rows=6)


def strided(array: NDArray[Any]) -> NDArray[Any]:
    """Return every other number of an array that is twice as long in every direction."""
    memory = np.zeros([2 * size for size in array.shape], dtype=array.dtype)
    view = memory[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def backwards(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view from the last number to the first of an array that has them the other way round."""
    every = tuple(slice(None, None, -1) for _ in array.shape)
    return array[every].copy()[every]


def unaligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers that begin at an odd address."""
    memory = np.zeros(array.nbytes + 1, dtype=np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


LAYOUTS: dict[str, Layout] = {
    "row-major": np.ascontiguousarray,
    "column-major": np.asfortranarray,
    "strided": strided,
    "backwards": backwards,
    "unaligned": unaligned,
}
layouts = st.sampled_from(sorted(LAYOUTS))


def lie(array: NDArray[Any], layout: str) -> NDArray[Any]:
    there = LAYOUTS[layout](array)
    assert np.array_equal(there, array)
    return there


@given(layouts, st.sampled_from([(7, 3), (1, 5), (5, 1), (1, 1), (4,), (0, 3)]))
def test_what_is_laid_out_has_the_strides_of_a_new_array(layout: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).normal(size=shape)
    there = lay_out(lie(array, layout))
    assert np.array_equal(there, array)
    assert there.strides == np.empty(shape).strides
    assert there.flags.aligned
    assert not np.shares_memory(there, array)


@pytest.mark.slow
@given(st.data(), st.integers(0, 3), st.sampled_from(["nothing", "items", "contexts"]), st.integers(1, 3))
def test_a_restored_state_does_not_depend_on_layouts(data: st.DataObject, seed: int, of: str, context_dim: int) -> None:
    rng = np.random.default_rng(seed)
    prior_mean = None
    if of != "nothing":
        utilities = Utilities.draw(rng, n_items=N_ITEMS, context_dim=context_dim, of=of)
        prior_mean = utilities.prior_mean(WCK, SLATE_SIZE)
    start = State.initial(KERNEL, context_dim=context_dim, limits=LIMITS, prior_mean=prior_mean)
    drawn = happenings(seed, 110, context_dim=context_dim)
    state = folded(start, drawn).refit()
    memory = state.checkpoint

    def lying(array: NDArray[Any]) -> NDArray[Any]:
        return lie(array, data.draw(layouts))

    observed_rows = replace(memory.observed_rows)
    shape = observed_rows.noise_shape
    arrays = {name: lying(getattr(observed_rows, name)) for name in ("contexts", "rankings", "targets", "leftovers")}
    arrays["noise_shape"] = None if shape is None else lying(shape)
    other = replace(
        memory,
        observed_rows=replace(observed_rows, **arrays),
        pending=PendingSlates(lying(memory.pending.contexts), lying(memory.pending.rankings)),
    )
    if prior_mean is not None:
        prior_mean = PriorMean.restore(
            KERNEL, lying(prior_mean.constants), lying(prior_mean.slopes), lying(prior_mean.row_of)
        )
    restored = State.restore(KERNEL, other, limits=LIMITS, prior_mean=prior_mean)
    assert digest_state(restored) == digest_state(state)
    later = happenings(9, 60, prefix="later-", context_dim=context_dim)
    assert digest_state(folded(restored, later)) == digest_state(folded(state, later))


@pytest.mark.slow
@given(st.data(), st.integers(0, 3))
def test_what_happens_does_not_depend_on_layouts(data: st.DataObject, seed: int) -> None:
    drawn = happenings(seed, 60)
    moved = [happening.lying(lambda array: lie(array, data.draw(layouts))) for happening in drawn]
    assert digest_state(folded(initial(LIMITS), moved)) == digest_state(folded(initial(LIMITS), drawn))


@pytest.mark.slow
@given(st.data())
def test_what_is_predicted_does_not_depend_on_layouts(data: st.DataObject) -> None:
    posterior = folded(initial(LIMITS), happenings(1, 90)).posterior
    rng = np.random.default_rng(2)
    context, rankings = rng.normal(size=CONTEXT_DIM), posterior.observations.rankings[:8].copy()
    one = posterior.predict(context, rankings)
    other = posterior.predict(lie(context, data.draw(layouts)), lie(rankings, data.draw(layouts)))
    assert one.mean.tobytes() == other.mean.tobytes()
    assert one.variance.tobytes() == other.variance.tobytes()
