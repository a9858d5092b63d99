"""The model that a log comes to, described in a few lines, and how far two models are apart."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_digests, decode_model
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topk_bandit.bandits.model import Model
    from topk_bandit.commands.log.dumps import Dump
    from topk_bandit.learning.limits import Limits

__all__ = ["Apart", "apart", "describe", "replay_dump", "snapshot_agrees"]

CONTEXTS, RANKINGS = 8, 200
"""Predictions of two models are compared in so many contexts, for so many slates each."""


def replay_dump(dump: Dump, *, limits: Limits, last: int | None = None) -> Model:
    """Return the model after the last event, or after the event at `last`.

    Raises
    ------
    InvalidArgumentError
        `last` is not in the log.
    CorruptDataError
        The log does not begin with its first event or a snapshot, or an event can't follow.
    """
    model, events = None, dump.events
    if dump.snapshot is not None:
        model = decode_model(dump.snapshot.payload, limits=limits)
    for logged in events:
        if last is not None and logged.position > last:
            break
        model = begin(dump.incarnation, logged, limits=limits) if model is None else fold(model, logged)
    if model is None or (last is not None and model.version != last):
        raise InvalidArgumentError("--to", f"a replay can end at {_span(dump)}, not at {last}")
    return model


def _span(dump: Dump) -> str:
    first = 1 if dump.snapshot is None else dump.snapshot.position
    return f"{first} to {dump.events[-1].position if dump.events else first}"


def snapshot_agrees(dump: Dump, *, limits: Limits) -> str:
    """Return whether a snapshot has here the digests that it had where it was taken; nothing without a snapshot."""
    if dump.snapshot is None:
        return ""
    theirs = decode_digests(dump.snapshot.payload)
    mine = digests_of(decode_model(dump.snapshot.payload, limits=limits))
    if difference := mine.difference(theirs):
        return f"its {difference} digest is not the one that it was saved with"
    same = mine.posterior == theirs.posterior
    return "as it was saved" if same else f"saved with another arithmetic: {theirs.arithmetic}"


def describe(model: Model) -> Mapping[str, str]:
    """Return what a model is, by name."""
    state, digests, items = model.state, digests_of(model), model.items
    posterior, shape = state.posterior, state.posterior.kernel.shape
    return {
        "version": f"{model.version} ({type(model.last.event).__name__})",
        "incarnation": model.incarnation,
        "log digest": digests.log,
        "posterior digest": digests.posterior,
        "arithmetic": digests.arithmetic,
        "items": f"{items.size}, {len(items.available_places)} available",
        "places": f"{items.places_in_use} of {posterior.kernel.n_items}, {len(items.retired_places)} of retired items",
        "observations": f"{state.observations}, in {posterior.n_rows} rows",
        "imported": f"{state.imported} of the observations",
        "open slates": f"{model.open_slates}, {posterior.n_pending} of them count for the variance",
        **{name.replace("_", " "): f"{value}" for name, value in asdict(model.tally).items()},
        "kernel": f"{model.settings.kernel}",
        "kernel's shape": "fixed"
        if shape is None
        else ", ".join(f"{name} {value!r}" for name, value in shape._asdict().items()),
        "noise variance": f"{posterior.amplitude * posterior.noise_variance!r}",
        "prior mean": f"{posterior.offset!r}" + (f" + {posterior.slope!r} h" if posterior.slope else ""),
        "prior variance": f"{posterior.amplitude * (1.0 + state.shared)!r}, for a context of norm 1",
    }


class Apart(NamedTuple):
    """The largest difference of means and of standard deviations, in the first model's prior standard deviations."""

    means: float
    deviations: float


def apart(one: Model, other: Model) -> Apart | None:
    """Return how far predictions of random slates in random contexts differ; None for models of other sizes."""
    kernel, sizes = one.state.posterior.kernel, [_sizes(model) for model in (one, other)]
    if sizes[0] != sizes[1]:
        return None
    rng, items, largest = np.random.default_rng(0), np.arange(kernel.n_items, dtype=np.int32), Apart(0.0, 0.0)
    rankings = random_rankings(items, slate_size=kernel.slate_size, count=RANKINGS, rng=rng)
    for context in rng.normal(size=(CONTEXTS, one.settings.context_dim)):
        mine, theirs = (model.state.predict(context, rankings) for model in (one, other))
        unit = np.sqrt(one.state.posterior.amplitude) * np.linalg.norm(one.state.encode(context))
        means = np.abs(mine.mean - theirs.mean).max() / unit
        deviations = np.abs(np.sqrt(mine.variance) - np.sqrt(theirs.variance)).max() / unit
        largest = Apart(max(largest.means, float(means)), max(largest.deviations, float(deviations)))
    return largest


def _sizes(model: Model) -> tuple[int, int, int]:
    kernel = model.state.posterior.kernel
    return kernel.n_items, kernel.slate_size, model.settings.context_dim
