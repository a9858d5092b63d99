"""Digests of a model, by which two workers compare what they made of one log.

The digest of the log covers items, settings, counts and sums, and is the same wherever the log is folded. The digest of
the posterior is the same where the arithmetic is the same; elsewhere numbers are rounded otherwise. Digests show that
two models differ, never how far.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.bandits.comparison import NOTHING_COMPARED
from topk_bandit.learning.arithmetic import describe_arithmetic
from topk_bandit.learning.digests import digest_state
from topk_bandit.store.codec import encode_event, encode_settings
from topk_bandit.store.data_versions import FIRST

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model

__all__ = ["Digests", "digests_of", "resume_arithmetic"]

_DIGEST_BYTES = 16
_ORIGIN_BYTES = 6
_AFTER = ", after "


class Digests(NamedTuple):
    """Digests of a model at one log position.

    Attributes
    ----------
    log
        The digest of what the log says.
    posterior
        The digest of the posterior's numbers.
    arithmetic
        What the posterior was computed with; see `resume_arithmetic`.
    """

    log: str
    posterior: str
    arithmetic: str

    def difference(self, other: Digests) -> str:
        """Return what differs and must not at the same log position: "log", "posterior" or ""."""
        if self.log != other.log:
            return "log"
        return "posterior" if self.arithmetic == other.arithmetic and self.posterior != other.posterior else ""


def digests_of(model: Model) -> Digests:
    """Return a model's digests: O(N^2)."""
    return Digests(_digest_of_log(model), digest_state(model.state), model.arithmetic)


def resume_arithmetic(saved: str, *, position: int) -> str:
    """Return what a model is computed with that goes on from a snapshot.

    It is `describe_arithmetic`, and where another arithmetic had a part in the snapshot, that too: the rows of such a
    snapshot have that one's rounding, which stays in all that follows.

    Parameters
    ----------
    saved
        What the snapshot was computed with.
    position
        The snapshot's log position.
    """
    ours = describe_arithmetic()
    if saved.partition(_AFTER)[0] == ours:
        return saved
    return f"{ours}{_AFTER}{blake2b(saved.encode(), digest_size=_ORIGIN_BYTES).hexdigest()} to {position}"


def _digest_of_log(model: Model) -> str:
    items, last, history = model.items, model.last, model.history
    content = [
        [model.incarnation, last.position, last.at_ms, encode_event(last.event, FIRST).decode()],
        encode_settings(model.settings, FIRST).decode(),
        [items.ids, items.available, items.retired, items.open_until_ms.tolist(), model.items_position],
        [model.prior_items.ids, model.state.observations, model.state.imported],
        model.tally.as_document(),
        [history.width_ms, history.current, history.numbers.tolist(), history.totals.tolist()],
    ]
    item_encoder = None if model.item_features is None else model.item_features.encoder
    encoders = [encoder for encoder in (model.encoder, item_encoder) if encoder is not None]
    content += [[[one.unknown, one.missing] for one in encoder.records] for encoder in encoders]
    if model.comparison != NOTHING_COMPARED:
        content.append(model.comparison.as_document())
    if model.exposures.promises:
        content.append(model.exposures.as_document())
    return blake2b(json.dumps(content).encode(), digest_size=_DIGEST_BYTES).hexdigest()
