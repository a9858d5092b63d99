"""Folds logs in a process of its own, so that it may compute as another processor does.

It reads jobs as JSON from its standard input, and writes what they come to as JSON: digests and predictions on the way,
and the newest snapshot.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from topk_bandit.bandits.digests import digests_of
from topk_bandit.bandits.fold import begin, fold
from topk_bandit.bandits.snapshots import decode_model, encode_model
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.rankings import random_rankings
from topk_bandit.store.codec import decode_event
from topk_bandit.store.events import LoggedEvent

if TYPE_CHECKING:
    from topk_bandit.bandits.model import Model

EVENTS_BETWEEN_LOOKS = 97


def job(incarnation: str, events: list[tuple[int, int, str]], *, rows: int, snapshot: str = "") -> dict[str, Any]:
    """Return what to fold: events as (position, time, bytes), after a snapshot if there is one."""
    return {"incarnation": incarnation, "events": events, "rows": rows, "snapshot": snapshot}


def look(model: Model) -> dict[str, Any]:
    """Return digests of a model, its choices, and what it predicts in units of its prior's standard deviation."""
    posterior, rng = model.state.posterior, np.random.default_rng(11)
    dim = model.settings.context_dim
    items = np.arange(posterior.kernel.n_items, dtype=np.int32)
    rankings = random_rankings(items, slate_size=posterior.kernel.slate_size, count=40, rng=rng)
    contexts = [*rng.normal(size=(3, dim)), np.eye(dim)[0]]
    moments = [model.state.predict(context, rankings) for context in contexts]
    units = [np.sqrt(posterior.amplitude) * np.linalg.norm(context) for context in contexts]
    return {
        "version": model.version,
        "digests": digests_of(model)._asdict(),
        "choices": [posterior.n_rows, list(posterior.kernel.shape or ()), f"{posterior.noise_variance:.9e}"],
        "means": [(one.mean / unit).tolist() for one, unit in zip(moments, units, strict=True)],
        "deviations": [(np.sqrt(one.variance) / unit).tolist() for one, unit in zip(moments, units, strict=True)],
    }


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Do one job."""
    events = [LoggedEvent(position, at_ms, decode_event(event.encode())) for position, at_ms, event in asked["events"]]
    limits, model = Limits(rows=asked["rows"], pending_rows=16), None
    if asked["snapshot"]:
        model = decode_model(base64.b64decode(asked["snapshot"]), limits=limits)
    looks, snapshots = [], []
    for logged in events:
        if model is None:
            model = begin(asked["incarnation"], logged, limits=limits)
        elif logged.position > model.version:
            model = fold(model, logged)
            if model.since_checkpoint == 0:
                snapshots.append((model.version, base64.b64encode(encode_model(model)).decode()))
            if logged.position % EVENTS_BETWEEN_LOOKS == 0 or logged is events[-1]:
                looks.append(look(model))
    return {"looks": looks, "middle": snapshots[len(snapshots) // 2]}


if __name__ == "__main__":
    json.dump({name: work(one) for name, one in json.load(sys.stdin).items()}, sys.stdout)
