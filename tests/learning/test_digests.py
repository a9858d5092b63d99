"""A digest is equal for states that are equal to the bit, and for no others."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from tests.learning.happenings import KERNEL, folded, happenings, initial

from topk_bandit.learning.calibration import Calibration
from topk_bandit.learning.digests import digest_state
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State

pytestmark = pytest.mark.bits

LIMITS = Limits(rows=200, pending_rows=6)
STATE = folded(initial(LIMITS), happenings(1, 300)).refit()


def nudged(value: Any) -> Any:  # noqa: ANN401 - whatever a state is made of
    """Return a value whose first number is one bit away."""
    if isinstance(value, np.ndarray):
        other = value.copy()
        first = other.reshape(-1)[:1]
        first[...] = np.nextafter(first, np.inf) if value.dtype.kind == "f" else first + 1
        return other
    return np.nextafter(value, np.inf) if isinstance(value, float) else value + 1


def test_the_same_happenings_have_the_same_digest() -> None:
    assert digest_state(folded(initial(LIMITS), happenings(1, 300)).refit()) == digest_state(STATE)
    assert digest_state(State.restore(KERNEL, STATE.checkpoint, limits=LIMITS)) == digest_state(STATE)


def test_every_bit_counts() -> None:
    posterior = STATE.posterior
    assert posterior.observed_rows.noise_shape is not None, "rows were not folded together"
    others = [replace(STATE, **{name: nudged(getattr(STATE, name))}) for name in ("observations", "since_refit")]
    others.append(replace(STATE, pending_ids=("another", *STATE.pending_ids[1:])))
    others += [
        replace(STATE, posterior=replace(posterior, **{name: nudged(getattr(posterior, name))}))
        for name in ("noise_variance", "offset", "slope", "amplitude")
    ]
    for part in ("_rows", "_pending", "_fitted"):
        held = getattr(posterior, part)
        for one in fields(held):
            if part == "_fitted" and one.name in {"contexts", "rankings", "targets"}:  # they are among the rows
                continue
            if one.name in {"content", "parts", "feedback"}:  # no features, few items, and no outcomes
                continue
            changed = replace(held, **{one.name: nudged(getattr(held, one.name))})
            others.append(replace(STATE, posterior=replace(posterior, **{part: changed})))
    others.append(replace(STATE, posterior=replace(posterior, _weights=nudged(posterior._weights))))
    sums = posterior._sums
    others += [
        replace(STATE, posterior=replace(posterior, _sums=sums._replace(**{name: nudged(getattr(sums, name))})))
        for name in sums._fields
    ]
    digests = [digest_state(state) for state in (STATE, *others)]
    assert len(set(digests)) == len(digests) > 18


def test_how_much_wider_spreads_are_counts() -> None:
    wider = [replace(STATE, calibration=Calibration(40.0, total, 1e4)) for total in (400.0, 500.0)]
    assert [one.spread_factor > 1.0 for one in wider] == [True, True]
    assert len({digest_state(one) for one in (STATE, *wider)}) == 3


def test_capacity_for_more_rows_does_not_count() -> None:
    posterior = STATE.posterior
    larger = replace(
        posterior, _rows=posterior._rows.with_capacity(posterior._rows.capacity + 9, used=posterior.n_rows)
    )
    assert digest_state(replace(STATE, posterior=larger)) == digest_state(STATE)


def test_values_that_look_alike_differ() -> None:
    without = replace(STATE, posterior=replace(STATE.posterior, slope=-0.0))
    assert digest_state(without) != digest_state(replace(STATE, posterior=replace(STATE.posterior, slope=0.0)))
