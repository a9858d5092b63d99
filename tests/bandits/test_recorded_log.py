"""A log and a snapshot as a store once kept them are read, and replayed to the posterior that they had then.

What is written in their data version today is what was written then, so that the program of then can take over.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.bandits.harness import LIMITS, assert_same, replayed
from tests.bandits.processor_fold import look

from topk_bandit.bandits.digests import Digests, digests_of
from topk_bandit.bandits.fold import fold
from topk_bandit.bandits.snapshots import decode_digests, decode_model, encode_model
from topk_bandit.learning.arithmetic import describe_arithmetic
from topk_bandit.store.codec import decode_snapshot, encode_event, encode_snapshot
from topk_bandit.store.events import (
    BanditCreated,
    Expired,
    ItemsChanged,
    Recommended,
    Rewarded,
    SettingsChanged,
)
from topk_bandit.store.redis.replies import read_slice

if TYPE_CHECKING:
    from topk_bandit.store.events import Event

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_log.json").read_text(encoding="utf-8"))
LOG = read_slice(
    [
        RECORDED["incarnation"].encode(),
        str(RECORDED["first_position"]).encode(),
        str(RECORDED["log_position"]).encode(),
        [entry.encode() for entry in RECORDED["entries"]],
        [],
        b"1",
    ],
    start=1,
)
SNAPSHOT, SNAPSHOT_BEFORE = (
    decode_snapshot(base64.b64decode(RECORDED[key])) for key in ("snapshot", "snapshot_before")
)
"""One of this program, and one of the program before, which knew less of what values are usual."""

RECORDED_VERSION = 1
"""The data version of the recording."""

MOST_APART = 1e-9
"""Standard deviations of the prior by which predictions of unlike arithmetic may differ (decision 18)."""


def test_the_recording_has_all_that_can_be_in_a_log() -> None:
    kinds = {type(logged.event) for logged in LOG.events}
    assert kinds == {BanditCreated, Expired, ItemsChanged, Recommended, Rewarded, SettingsChanged}
    changes = [logged.event for logged in LOG.events if isinstance(logged.event, SettingsChanged)]
    assert {(bool(change.settings.prior_study), change.prior is None) for change in changes} == {
        (False, True),
        (True, True),
        (True, False),
    }
    ended = [logged.event for logged in LOG.events if isinstance(logged.event, Expired)]
    assert {expired.default_reward for expired in ended} == {None, 0.25}
    assert (len(LOG.events), LOG.log_position) == (174, 174)


def test_a_recorded_log_is_replayed_to_the_posterior_that_it_had() -> None:
    then, now = RECORDED["look"], look(replayed(LOG.incarnation, LOG.events)[-1])
    assert now["version"] == then["version"] == LOG.log_position
    assert now["choices"] == then["choices"]
    assert Digests(**then["digests"]).difference(Digests(**now["digests"])) == ""
    for name in ("means", "deviations"):
        assert np.abs(np.array(now[name]) - np.array(then[name])).max() <= MOST_APART


def test_the_program_that_recorded_it_could_read_what_is_written_for_it() -> None:
    documents = [json.loads(entry.split(" ", 4)[4]) for entry in RECORDED["entries"]]
    assert [json.loads(encode_event(undated(logged.event), RECORDED_VERSION)) for logged in LOG.events] == documents
    model = decode_model(SNAPSHOT_BEFORE.payload, limits=LIMITS)
    payloads = encode_model(model, RECORDED_VERSION), SNAPSHOT_BEFORE.payload
    with np.load(BytesIO(payloads[0])) as ours, np.load(BytesIO(payloads[1])) as theirs:
        assert all(name.startswith(("recent", "usual")) for name in set(ours) - set(theirs))
        for name in set(theirs) - {"header"}:
            np.testing.assert_array_equal(ours[name], theirs[name])
        header, recorded = (json.loads(one["header"].tobytes()) for one in (ours, theirs))
    # It reads what it knows, and takes no notice of what it doesn't.
    beside = {"judged", "digests", "usual_rewards", "usual_contexts", "unit_from", "unitless"}
    ours, theirs = ({name: one[name] for name in set(one) - beside} for one in (header, recorded))
    assert ours == theirs
    assert [type(one) for one in header["usual_rewards"]] == [type(one) for one in recorded["usual_rewards"]]
    assert (header["usual_contexts"] is None) == (recorded["usual_contexts"] is None)
    for snapshot, key in ((SNAPSHOT, "snapshot"), (SNAPSHOT_BEFORE, "snapshot_before")):
        assert encode_snapshot(snapshot, RECORDED_VERSION) == base64.b64decode(RECORDED[key])


def test_one_goes_on_from_what_the_program_before_has_learned() -> None:
    before = decode_model(SNAPSHOT_BEFORE.payload, limits=LIMITS)
    model = before
    for logged in LOG.events[SNAPSHOT_BEFORE.position :]:
        model = fold(model, logged)
    assert before.state.observations < model.state.observations
    assert len(model.state.recent) == model.state.observations - before.state.observations
    assert model.tally.recommendations == replayed(LOG.incarnation, LOG.events)[-1].tally.recommendations


def undated(event: Event) -> Event:
    """Return an event without the deadline, which an entry has beside it."""
    if not isinstance(event, Recommended):
        return event
    return Recommended(event.request, replace(event.recommendation, deadline_ms=0))


def test_a_recorded_snapshot_is_read_and_gone_on_from() -> None:
    models = replayed(LOG.incarnation, LOG.events)
    digests, snapshot = decode_digests(SNAPSHOT.payload), decode_model(SNAPSHOT.payload, limits=LIMITS)
    assert digests_of(snapshot).difference(digests) == ""
    model = snapshot
    for logged in LOG.events[SNAPSHOT.position :]:
        model = fold(model, logged)
    if digests.arithmetic == describe_arithmetic():
        assert_same(snapshot, models[SNAPSHOT.position - 1])
        assert_same(model, models[-1])
    then, now = RECORDED["look"], look(model)
    assert (now["choices"], now["digests"]["log"]) == (then["choices"], then["digests"]["log"])
    for name in ("means", "deviations"):
        assert np.abs(np.array(now[name]) - np.array(then[name])).max() <= MOST_APART
