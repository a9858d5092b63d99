"""A digest of all numbers of a state: equal for states that are the same to the bit, and only for them."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from topk_bandit.learning.policy import State

__all__ = ["digest_state"]

_DIGEST_BYTES = 16


def digest_state(state: State) -> str:
    """Return the digest of what a state predicts from, in hexadecimal digits.

    It covers every number that later predictions depend on: rows, factors, weights, sums, choices and counts. It does
    not cover the capacity that arrays have beyond their rows.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    numbers = *state.posterior.numbers, state.pending_ids, state.observations, state.since_refit
    if not state.recent.believed.all():
        numbers = *numbers, state.recent.rewards, state.recent.verdicts
    if state.spread_factor > 1.0:
        numbers = *numbers, *state.calibration
    if state.feedback is not None:
        numbers = *numbers, *state.feedback.numbers, state.recent.outcomes
    for value in numbers:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape};".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:  # the text of a float gives the float back
            digest.update(f"{value!r};".encode())
    return digest.hexdigest()
