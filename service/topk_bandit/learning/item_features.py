"""Features of items as the rows that the kernel's content part takes: centred, and of length 1 at most.

Items are encoded as contexts are (`encoding`), with centres and scales of their own that are taken of the first items.
From what has no order of its own, texts and flags, the mean of the items at hand is taken off, too: a constant among
the features would make all slates alike. So a feature that is missing is that of an average item.

What was encoded is kept by place and is recoded when a centre or a scale changes, so that nobody has to keep what the
shop sent. All of it is a function of the changes in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.features import NO_FEATURES
from topk_bandit.learning._layout import lay_out
from topk_bandit.learning.encoding import Encoder, find_blocks
from topk_bandit.learning.feature_records import COUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.features import Features, FeatureSchema

__all__ = ["ItemFeatures", "bytes_an_item", "content_width"]

_MEAN_LENGTH = 0.5
"""Root mean square of the rows' lengths: few rows have to be shortened to 1."""

_ROUNDING = 1e-9


def content_width(schema: FeatureSchema) -> int:
    """Return q, how many numbers the kernel has of each item: those that encode it but for what says it is missing."""
    return sum(feature.kind.width - 1 for feature in schema)


def bytes_an_item(schema: FeatureSchema) -> int:
    """Return how many bytes the features of an item take: as encoded, and as the kernel has them."""
    return 8 * (sum(feature.kind.width for feature in schema) + content_width(schema))


@dataclass(frozen=True, slots=True, eq=False)
class ItemFeatures:
    """The features of all places' items.

    Attributes
    ----------
    encoder
        Encodes them, and knows what was seen of each feature.
    encoded
        What it gives, by place, shape (n, C); where no item is, that of one of which all is missing.
    centre
        What is taken off, shape (C,).
    taken
        How many items' features were taken in since the schema grew, also of those that changed again.
    """

    encoder: Encoder
    encoded: NDArray[np.float64]
    centre: NDArray[np.float64]
    taken: int = 0

    @classmethod
    def initial(cls, schema: FeatureSchema, *, n_places: int) -> ItemFeatures:
        """Return what is known before any item has features."""
        encoder = Encoder.initial(schema)
        blank = _blank_of(encoder)
        return cls(encoder, lay_out(np.tile(blank, (n_places, 1))), np.zeros(len(blank)))

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes, with the kernel's rows."""
        return self.encoder.memory_bytes + len(self.encoded) * bytes_an_item(self.encoder.schema)

    @property
    def rows(self) -> NDArray[np.float64]:
        """What the kernel takes, by place, shape (n, q): a function of what is encoded and of the centre."""
        blocks = []
        for block, weight in zip(find_blocks(self.encoder.schema), self.encoder.weights, strict=True):
            present = 1.0 - self.encoded[:, block][:, -1:] / weight
            blocks.append(self.encoded[:, block][:, :-1] - present * self.centre[block][:-1])
        rows = _MEAN_LENGTH * np.concatenate(blocks, axis=1)
        lengths = np.sqrt((rows * rows).sum(axis=1))
        return lay_out(rows / np.maximum(lengths, 1.0)[:, None])

    def with_places(self, n_places: int) -> ItemFeatures:
        """Return the features of at least as many places."""
        more = n_places - len(self.encoded)
        if not more:
            return self
        return replace(
            self, encoded=lay_out(np.concatenate([self.encoded, np.tile(_blank_of(self.encoder), (more, 1))]))
        )

    def with_schema(self, schema: FeatureSchema) -> ItemFeatures:
        """Return the features under a schema that has all that the schema had; what is new is missing."""
        if schema == self.encoder.schema:
            return self
        changed = self._recode_items(self.encoder.with_schema(schema))
        known = {feature.name for feature in self.encoder.schema}
        encoded, blank = changed.encoded.copy(), _blank_of(changed.encoder)
        for feature, block in zip(schema, find_blocks(schema), strict=True):
            if feature.name not in known:
                encoded[:, block] = blank[block]
        # What is new has no centre yet: means are taken anew as items tell it.
        return replace(changed, encoded=lay_out(encoded), taken=0)

    def change(
        self, places: NDArray[np.int32], features: Sequence[Features], *, free: NDArray[np.int32]
    ) -> ItemFeatures:
        """Return the features after those of some items changed, each of the schema.

        Parameters
        ----------
        places
            For these items, distinct.
        features
            Theirs, in the same order.
        free
            Places without an item.
        """
        encoder, taken = self.encoder, self.taken
        for place, one in zip(places.tolist(), features, strict=True):
            # What is sent again, as with another availability, is no further value.
            new = self.encoder.encode(one).context
            if one.values and not np.allclose(new, self.encoded[place], rtol=_ROUNDING, atol=_ROUNDING):
                encoder, taken = encoder.observe(one), taken + 1
        changed = replace(self._recode_items(encoder), taken=taken)
        encoded = changed.encoded.copy()
        for place, one in zip(places.tolist(), features, strict=True):
            encoded[place] = encoder.encode(one).context
        encoded[free] = _blank_of(encoder)
        changed = replace(changed, encoded=lay_out(encoded))
        is_time = any(self.taken < count <= taken for count in COUNTS)
        return _centre(changed) if is_time or not encoder.encodes_alike(self.encoder) else changed

    def _recode_items(self, encoder: Encoder) -> ItemFeatures:
        """Return what another encoder would have made of the same items, but for what was clamped."""
        if encoder.encodes_alike(self.encoder):
            return replace(self, encoder=encoder)
        ones = np.ones(len(self.encoded) + 1)
        before = np.column_stack([np.vstack([self.encoded, self.centre]), ones])
        recoded = encoder.recode(before, ones, self.encoder, shared=1.0)[:, :-1]
        return replace(self, encoder=encoder, encoded=lay_out(recoded[:-1]), centre=lay_out(recoded[-1]))


def _blank_of(encoder: Encoder) -> NDArray[np.float64]:
    """Return an item of which all is missing, shape (C,)."""
    return encoder.encode(NO_FEATURES).context


def _centre(features: ItemFeatures) -> ItemFeatures:
    """Return the features with the means of the items at hand as their centre."""
    encoder, encoded = features.encoder, features.encoded
    centre = np.zeros(encoded.shape[1])
    for block, weight in zip(find_blocks(encoder.schema), encoder.weights, strict=True):
        present = 1.0 - encoded[:, block][:, -1] / weight
        count = present.sum()
        if count > _ROUNDING:
            centre[block] = (present @ encoded[:, block]) / count
    return replace(features, centre=centre)
