"""How much of what tells slates apart comes of which feature: shares of the posterior mean, squared.

The mean of a slate is linear in the numbers of its context, and what content adds is linear in those of its items. So
what a feature adds to the mean of a slate is a sum over its own numbers, and all of them add up to the mean. Before any
reward all features count alike: that is the prior (`encoding`). The shares here follow from the rewards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.learning.encoding import find_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.learning.posterior import Posterior

__all__ = ["FeatureShares", "find_shares"]

_MOST_ROWS = 128
"""So many of the newest slates are looked at: O(N) each."""


class FeatureShares(NamedTuple):
    """From 0 to 1, in the order of the schemas: one in all with the share of no feature, zeros without rewards.

    Attributes
    ----------
    of_contexts
        Beside what holds for all requests alike.
    of_items
        Beside what is learned of items by themselves.
    """

    of_contexts: tuple[float, ...]
    of_items: tuple[float, ...]


def find_shares(
    posterior: Posterior, context_schema: FeatureSchema | None, item_schema: FeatureSchema | None
) -> FeatureShares:
    """Return the shares of the features of both schemas; none of one that is None."""
    rows = posterior.observations
    contexts, rankings = rows.contexts[-_MOST_ROWS:], rows.rankings[-_MOST_ROWS:]
    of_numbers, of_content = posterior.parts_of_mean(contexts, rankings)
    widths = [] if item_schema is None else [feature.kind.width - 1 for feature in item_schema]
    blocks = [] if context_schema is None else [block.stop - block.start for block in find_blocks(context_schema)]
    if not of_content.shape[1]:
        of_content = np.zeros((len(rankings), sum(widths)))
    return FeatureShares(
        _shares(of_numbers, blocks, of_numbers.sum(axis=1)), _shares(of_content, widths, of_numbers.sum(axis=1))
    )


def _shares(parts: NDArray[np.float64], widths: Sequence[int], whole: NDArray[np.float64]) -> tuple[float, ...]:
    """Return the shares of blocks of columns, one after the other, beside what they lack of the whole."""
    starts = np.cumsum([0, *widths])
    blocks = [parts[:, start : start + width].sum(axis=1) for start, width in zip(starts, widths, strict=False)]
    squares = [float(block @ block) for block in blocks]
    rest = whole - sum(blocks, np.zeros(len(whole)))
    total = sum(squares) + float(rest @ rest)
    return tuple(square / total if total > 0.0 else 0.0 for square in squares)
