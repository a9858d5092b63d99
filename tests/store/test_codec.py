"""Values survive being written and read; bytes that were not written so are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.samples import SETTINGS, recommendation, request

from topk_bandit.domain.bandits import (
    Activated,
    Aggregation,
    BanditCreated,
    BanditSettings,
    ConstantBeta,
    Event,
    Expired,
    Exploration,
    Imported,
    Item,
    ItemsChanged,
    ItemUtility,
    Kernel,
    Lapsed,
    PaperBeta,
    PastSlate,
    Prior,
    Recommendation,
    RecommendationRequest,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRange,
    SettingsChanged,
    Shown,
)
from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.store import codec
from topk_bandit.store.log import Snapshot

numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=0, max_value=2**53)
texts = st.text(st.characters(exclude_categories=["Cs"]))
text_tuples = st.lists(texts, max_size=4).map(tuple)
explorations = st.builds(
    Exploration, beta=st.builds(ConstantBeta, numbers) | st.builds(PaperBeta, numbers), uniform_share=numbers
)
all_settings = st.builds(
    BanditSettings,
    item_capacity=counts,
    slate_size=counts,
    context_dim=counts,
    kernel=st.sampled_from(Kernel),
    exploration=explorations,
    reward_wait_ms=counts,
    default_reward=st.none() | numbers,
    requires_activation=st.booleans(),
    reward_aggregation=st.sampled_from(Aggregation),
    reward_range=st.none() | st.builds(RewardRange, numbers, numbers, clamp=st.booleans()),
    baseline_item_ids=text_tuples,
)
priors = st.builds(
    Prior,
    study=texts,
    answers=counts,
    utilities=st.lists(
        st.builds(ItemUtility, texts, numbers, st.lists(numbers, max_size=3).map(tuple)), max_size=4
    ).map(tuple),
)
settings_with_priors = st.builds(
    replace, all_settings, prior_study=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), prior_digest=texts
)
buckets = st.integers(min_value=0, max_value=9)
kinds = st.one_of(
    st.builds(Numeric, st.none() | numbers, st.none() | numbers, texts, st.booleans()),
    st.builds(Boolean),
    st.builds(Categorical, text_tuples, buckets),
    st.builds(LabelSet, text_tuples, buckets),
    st.builds(Vector, counts, numbers),
)
settings_with_schemas = st.builds(
    replace,
    all_settings,
    context_schema=st.none() | st.lists(st.builds(Feature, texts, kinds), max_size=4).map(tuple),
    item_schema=st.none() | st.lists(st.builds(Feature, texts, kinds), max_size=4).map(tuple),
)
feature_values = st.one_of(
    numbers, st.booleans(), texts, text_tuples, st.lists(numbers, min_size=1, max_size=4).map(tuple)
)
named = st.dictionaries(texts, feature_values, max_size=4).map(Features.of)
contexts = st.lists(numbers, max_size=4).map(tuple) | named
requests = st.builds(
    RecommendationRequest,
    request_id=texts,
    context=contexts,
    candidates=st.none() | text_tuples,
)
recommendations = st.builds(
    Recommendation,
    recommendation_id=texts,
    slate=text_tuples,
    propensity=numbers,
    mean=numbers,
    standard_deviation=numbers,
    regret_bound=numbers,
    estimated_regret=numbers,
    explored=st.booleans(),
    model_version=counts,
    observations=counts,
    deadline_ms=counts,
    degraded=st.booleans(),
    passed_over=counts,
    baseline=st.booleans(),
)
shown = st.builds(Shown, context=contexts, slate=text_tuples, at_ms=counts)
events = st.one_of(
    st.builds(BanditCreated, all_settings | settings_with_priors | settings_with_schemas, st.none() | priors),
    st.builds(SettingsChanged, all_settings | settings_with_priors | settings_with_schemas, st.none() | priors),
    st.builds(
        ItemsChanged,
        upserted=st.lists(st.builds(Item, texts, st.booleans(), named), max_size=4).map(tuple),
        retired=text_tuples,
    ),
    st.builds(Recommended, request=requests, recommendation=recommendations),
    st.builds(Activated, texts, shown, st.booleans()),
    st.builds(Lapsed, texts),
    st.builds(RewardCollected, texts, texts, st.none() | numbers),
    st.builds(Rewarded, texts, numbers, shown),
    st.builds(RewardAmended, texts, st.none() | numbers),
    st.builds(Expired, texts, st.none(), st.none()),
    st.builds(Expired, texts, numbers, shown),
    st.builds(
        Imported,
        texts,
        counts,
        st.lists(
            st.builds(
                PastSlate,
                contexts,
                text_tuples,
                numbers,
                st.none() | st.integers(-(10**14), 10**14),
                st.none() | numbers,
            ),
            max_size=4,
        ).map(tuple),
    ),
)
EVENT = Recommended(request=request(candidates=("a",)), recommendation=recommendation())
SHOWN = Shown(context=(0.1, -2.5), slate=("pear", "apple"), at_ms=17)


@given(all_settings | settings_with_priors)
def test_settings_survive(settings: BanditSettings) -> None:
    assert codec.decode_settings(codec.encode_settings(settings)) == settings


def logged_and_read(prior: Prior) -> Prior:
    event = codec.decode_event(codec.encode_event(SettingsChanged(SETTINGS, prior)))
    assert isinstance(event, SettingsChanged)
    assert event.prior is not None
    return event.prior


@given(priors)
def test_priors_survive(prior: Prior) -> None:
    assert logged_and_read(prior) == prior


@given(priors, priors)
def test_priors_have_one_digest_exactly_when_they_are_equal(one: Prior, other: Prior) -> None:
    assert codec.prior_digest(logged_and_read(one)) == codec.prior_digest(one)
    assert (codec.prior_digest(one) == codec.prior_digest(other)) == (one == other)


def test_settings_without_a_prior_say_nothing_of_one() -> None:
    assert b"prior" not in codec.encode_settings(SETTINGS)
    assert b"prior" not in codec.encode_event(SettingsChanged(SETTINGS))


@given(recommendations)
def test_recommendations_survive(given_out: Recommendation) -> None:
    event = Recommended(request=request(), recommendation=given_out)
    recorded, logged = codec.encode_recommended(event)
    assert codec.decode_recommendation(recorded) == given_out
    assert logged == codec.encode_event(event)


@given(events)
def test_events_survive(event: Event) -> None:
    read = codec.decode_event(codec.encode_event(event))
    assert read == event
    assert type(read) is type(event)


@pytest.mark.parametrize("event", [Expired("r", None, SHOWN), Expired("r", 1.0, None)])
def test_what_was_shown_goes_with_a_default_reward(event: Expired) -> None:
    with pytest.raises(CorruptDataError, match="shown"):
        codec.decode_event(codec.encode_event(event))


@given(st.lists(numbers, max_size=4))
def test_a_context_is_one_word_of_json(context: list[float]) -> None:
    encoded = codec.encode_context(context)
    assert not encoded.split()[1:]
    assert [number.hex() for number in json.loads(encoded)] == [number.hex() for number in context]


@given(named)
def test_named_features_are_one_word_of_json(features: Features) -> None:
    encoded = codec.encode_context(features)
    assert not encoded.split()[1:]
    shown_then = (
        b'{"v":1,"type":"rewarded","recommendation_id":"r","value":1.0,"shown":{"context":%s,"slate":[],"at_ms":1}}'
    )
    read = codec.decode_event(shown_then % encoded)
    assert read == Rewarded("r", 1.0, Shown(features, (), 1))


@given(numbers)
def test_a_context_survives_to_the_last_bit_and_sign(number: float) -> None:
    event = Recommended(request=request(context=(number,)), recommendation=recommendation())
    read = codec.decode_event(codec.encode_event(event))
    assert isinstance(read, Recommended)
    assert read.request.context[0].hex() == number.hex()


@given(counts, st.binary())
def test_snapshots_survive(position: int, payload: bytes) -> None:
    snapshot = Snapshot(position=position, payload=payload)
    assert codec.decode_snapshot(codec.encode_snapshot(snapshot)) == snapshot


@given(numbers, numbers)
def test_numbers_have_one_text_exactly_when_they_are_equal(one: float, other: float) -> None:
    assert (codec.canonical(one) == codec.canonical(other)) == (one == other)
    assert float(codec.canonical(one)) == one


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_no_text_for_what_is_no_number(number: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        codec.canonical(number)
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_event(Rewarded("rec", number, SHOWN))


def test_equal_settings_have_equal_bytes() -> None:
    as_integers = replace(SETTINGS, default_reward=0, exploration=Exploration(ConstantBeta(4), 0))
    as_floats = replace(SETTINGS, default_reward=-0.0, exploration=Exploration(ConstantBeta(4.0), 0.0))
    assert codec.encode_settings(as_integers) == codec.encode_settings(as_floats)


@given(requests, requests)
def test_fingerprints_tell_requests_apart(one: RecommendationRequest, other: RecommendationRequest) -> None:
    same = (one.context, one.candidates) == (other.context, other.candidates)
    assert (codec.fingerprint(one) == codec.fingerprint(other)) == same
    assert codec.fingerprint(replace(one, request_id=other.request_id)) == codec.fingerprint(one)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[1]", b'"text"', b"{}", b"\xff\xfe", b'{"v":1}', b"[" * 100_000, b'{"v":1,"type":"other"}'],
)
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    for decode in (codec.decode_event, codec.decode_settings, codec.decode_recommendation):
        with pytest.raises(CorruptDataError):
            decode(data)


@pytest.mark.parametrize("schema", [0, 2, "1", 1.0, True, None])
def test_an_unknown_schema_is_refused(schema: object) -> None:
    document = json.loads(codec.encode_event(EVENT))
    with pytest.raises(CorruptDataError):
        codec.decode_event(json.dumps({**document, "v": schema}).encode())


def spoiled(document: object) -> list[Any]:
    """Return copies of a document, each with one value removed or of another type."""
    if not isinstance(document, dict):
        return []
    copies = [{key: value for key, value in document.items() if key != gone} for gone in document]
    for key, value in document.items():
        copies += [{**document, key: other} for other in spoiled(value)]
        wrong = [{"x": 1}, 17 if isinstance(value, str) else "text", float("nan"), [None]]
        copies += [{**document, key: other} for other in wrong]
    return copies


@pytest.mark.parametrize(
    "event",
    [
        EVENT,
        BanditCreated(SETTINGS),
        Rewarded("r", 1.0, SHOWN),
        Expired("r", 2.0, SHOWN),
        Expired("r", None, None),
        ItemsChanged((Item("a"),), ("b",)),
    ],
)
def test_a_spoiled_event_is_refused(event: Event) -> None:
    for document in spoiled(json.loads(codec.encode_event(event))):
        with pytest.raises(CorruptDataError):
            codec.decode_event(json.dumps(document).encode())


@pytest.mark.parametrize(
    "upserted",
    [[["a"]], [["a", True, 1]], [["a", True, {}]], [["a", True, {}, 1]], [["a", 1]], [[1, True]], ["a"], [None]],
)
def test_spoiled_items_are_refused(upserted: list[Any]) -> None:
    document = {"v": 1, "type": "items_changed", "upserted": upserted, "retired": []}
    with pytest.raises(CorruptDataError, match=r"upserted|item_id|available|features"):
        codec.decode_event(json.dumps(document).encode())


@pytest.mark.parametrize(
    "spoiled_row",
    [
        None,
        "row",
        {},
        {"context": [0.5], "slate": ["a"]},
        {"context": [0.5], "slate": ["a"], "reward": 1},
        {"context": [0.5], "slate": ["a"], "reward": 1.0, "at_ms": None},
        {"context": [0.5], "slate": ["a"], "reward": 1.0, "at_ms": 1.5},
        {"context": [0.5], "slate": ["a"], "reward": 1.0, "propensity": 1},
        {"context": [1], "slate": ["a"], "reward": 1.0},
        {"context": [0.5], "slate": "a", "reward": 1.0},
    ],
)
def test_spoiled_rows_of_an_import_are_refused(spoiled_row: object) -> None:
    document = json.loads(codec.encode_event(Imported("i", 0, (PastSlate((0.5,), ("a",), 1.0),))))
    document["slates"].append(spoiled_row)
    with pytest.raises(CorruptDataError):
        codec.decode_event(json.dumps(document).encode())


def test_each_changed_bit_of_a_snapshot_is_noticed() -> None:
    frame = codec.encode_snapshot(Snapshot(position=7, payload=b"payload"))
    for index in range(len(frame) * 8):
        changed = bytearray(frame)
        changed[index // 8] ^= 1 << index % 8
        with pytest.raises(CorruptDataError):
            codec.decode_snapshot(bytes(changed))


def test_a_snapshot_cut_short_or_prolonged_is_noticed() -> None:
    frame = codec.encode_snapshot(Snapshot(position=7, payload=b"payload"))
    for length in range(len(frame)):
        with pytest.raises(CorruptDataError):
            codec.decode_snapshot(frame[:length])
    with pytest.raises(CorruptDataError):
        codec.decode_snapshot(frame + b"x")
