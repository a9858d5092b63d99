"""Values survive being written and read; bytes that were not written so are refused."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.samples import SETTINGS, recommendation, request

from topk_bandit.domain.bandits import (
    Aggregation,
    BanditSettings,
    ConstantBeta,
    Exploration,
    Item,
    ItemUtility,
    Kernel,
    PaperBeta,
    Prior,
    RewardRange,
)
from topk_bandit.domain.durability import FSYNC, IN_MEMORY, Durability
from topk_bandit.domain.errors import CorruptDataError, NewerDataError
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, LabelSet, Numeric, Vector
from topk_bandit.domain.rules import (
    Absence,
    AbsenceReason,
    Apart,
    Count,
    Exclude,
    Filter,
    Frequency,
    Group,
    Pin,
    SlateRule,
)
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.domain.stages import Group as ControlGroup
from topk_bandit.domain.stages import Shadow, Stage
from topk_bandit.store import codec
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    BanditReset,
    Event,
    EventSkipped,
    Expired,
    Imported,
    ItemsChanged,
    Lapsed,
    PastSlate,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRevised,
    SettingsChanged,
    Shown,
)
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=0, max_value=2**53)
texts = st.text(st.characters(exclude_categories=["Cs"]))
text_tuples = st.lists(texts, max_size=4).map(tuple)
explorations = st.builds(
    Exploration, beta=st.builds(ConstantBeta, numbers) | st.builds(PaperBeta, numbers), uniform_share=numbers
)
rule_groups = st.builds(Group, texts, st.none() | texts, counts)
slate_rules = st.lists(
    st.builds(
        SlateRule,
        st.builds(Exclude, text_tuples)
        | st.builds(Filter, texts)
        | st.builds(Pin, text_tuples, counts)
        | st.builds(Count, rule_groups, counts, st.none() | counts)
        | st.builds(Apart, rule_groups),
        st.booleans(),
    ),
    max_size=3,
).map(tuple)
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
    reward_range=st.none() | st.builds(RewardRange, numbers, numbers, clamp=st.booleans(), trusted=st.booleans()),
    baseline_item_ids=text_tuples,
    durability=st.sampled_from([None, IN_MEMORY, FSYNC, Durability(synced=True, replicas=9)]),
    default_item_value=st.none() | numbers,
    stage=st.sampled_from(Stage),
    control_share=st.floats(0.0, 0.9),
    guardrail_margin=st.none() | st.floats(0.0, 1.0),
    conservative_share=st.floats(0.0, 1.0, exclude_max=True),
    rules=slate_rules,
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
groups = st.sampled_from(ControlGroup)
requests = st.builds(
    RecommendationRequest,
    request_id=texts,
    context=contexts,
    candidates=st.none() | text_tuples,
    baseline_item_ids=text_tuples,
    group_key=texts,
    rules=slate_rules,
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
    stage=st.sampled_from(Stage),
    group=groups,
    shadow=st.none() | st.builds(Shadow, text_tuples, numbers, numbers),
    relaxed=text_tuples,
    paid=text_tuples,
)
item_values = st.none() | st.lists(st.none() | numbers, min_size=1, max_size=4).map(tuple)
shown = st.builds(Shown, context=contexts, slate=text_tuples, at_ms=counts)
events = st.one_of(
    st.builds(BanditCreated, all_settings | settings_with_priors | settings_with_schemas, st.none() | priors),
    st.builds(SettingsChanged, all_settings | settings_with_priors | settings_with_schemas, st.none() | priors, texts),
    st.builds(BanditReset, texts),
    st.builds(EventSkipped, texts, counts),
    st.builds(
        ItemsChanged,
        upserted=st.lists(st.builds(Item, texts, st.booleans(), named), max_size=4).map(tuple),
        retired=text_tuples,
    ),
    st.builds(Recommended, request=requests, recommendation=recommendations),
    st.builds(Activated, texts, shown, st.booleans()),
    st.builds(Lapsed, texts),
    st.builds(RewardCollected, texts, texts, st.none() | numbers, st.booleans(), item_values),
    st.builds(Rewarded, texts, numbers, shown, st.booleans(), item_values, groups),
    st.builds(RewardAmended, texts, st.none() | numbers, st.none() | numbers, item_values, groups, st.none() | numbers),
    st.builds(
        RewardRevised,
        texts,
        st.none() | numbers,
        shown,
        counts,
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.none() | numbers,
        item_values,
        item_values,
        groups,
    ),
    st.builds(Expired, texts, st.none(), st.none(), group=groups),
    st.builds(Expired, texts, numbers, shown, st.booleans(), item_values, groups),
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
                item_values,
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
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_event(Rewarded("rec", np.float64(number), SHOWN))


def test_numbers_of_numpy_are_numbers() -> None:
    plain, of_numpy = (Rewarded("rec", kind(0.1), SHOWN) for kind in (float, np.float64))
    assert codec.encode_event(of_numpy) == codec.encode_event(plain)
    with pytest.raises(TypeError, match="complex has no place"):
        codec.encode_event(Rewarded("rec", 1j, SHOWN))  # type: ignore[arg-type]


def test_equal_settings_have_equal_bytes() -> None:
    as_integers = replace(SETTINGS, default_reward=0, exploration=Exploration(ConstantBeta(4), 0))
    as_floats = replace(SETTINGS, default_reward=-0.0, exploration=Exploration(ConstantBeta(4.0), 0.0))
    assert codec.encode_settings(as_integers) == codec.encode_settings(as_floats)


def _compared(request: RecommendationRequest) -> RecommendationRequest:
    rules = tuple(one for one in request.rules if not isinstance(one.rule, Exclude))
    return replace(request, request_id="", rules=rules)


@given(requests, requests)
def test_fingerprints_tell_requests_apart(one: RecommendationRequest, other: RecommendationRequest) -> None:
    same = _compared(one) == _compared(other)
    assert (codec.fingerprint(one) == codec.fingerprint(other)) == same
    assert codec.fingerprint(replace(one, request_id=other.request_id)) == codec.fingerprint(one)
    assert codec.fingerprint(replace(one, explain=("a",))) == codec.fingerprint(one)
    excluding = replace(one, rules=(SlateRule(Exclude(("a",))), *one.rules))
    assert codec.fingerprint(excluding) == codec.fingerprint(one)


@given(requests, recommendations)
def test_absent_items_are_not_recorded(asked: RecommendationRequest, given_out: Recommendation) -> None:
    said = Recommended(
        replace(asked, explain=("a",)), replace(given_out, absent=(Absence("a", AbsenceReason.RULE, "apart"),))
    )
    assert codec.encode_recommended(said) == codec.encode_recommended(Recommended(asked, given_out))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[1]", b'"text"', b"{}", b"\xff\xfe", b'{"v":1}', b"[" * 100_000, b'{"v":1,"type":"other"}'],
)
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    for decode in (codec.decode_event, codec.decode_settings, codec.decode_recommendation):
        with pytest.raises(CorruptDataError):
            decode(data)


@pytest.mark.parametrize("version", [0, "1", 1.0, True, None])
def test_an_unknown_data_version_is_refused(version: object) -> None:
    document = json.loads(codec.encode_event(EVENT))
    with pytest.raises(CorruptDataError):
        codec.decode_event(json.dumps({**document, "v": version}).encode())


def test_what_a_newer_program_wrote_is_not_taken_for_damaged() -> None:
    document = json.loads(codec.encode_event(EVENT))
    for later in ({}, {"type": "of later"}, {"of_later": [1]}):
        with pytest.raises(NewerDataError, match=f"data of version {NEWEST + 1}"):
            codec.decode_event(json.dumps({**document, **later, "v": NEWEST + 1}).encode())
    frame = codec.encode_snapshot(Snapshot(position=7, payload=b"payload"), NEWEST + 1)
    with pytest.raises(NewerDataError):
        codec.decode_snapshot(frame)
    with pytest.raises(CorruptDataError):
        codec.decode_snapshot(frame[:-1] + b"x")


def test_shares_that_never_fall_are_left_out_and_told_in_no_other_way() -> None:
    kept = replace(SETTINGS, exploration=replace(SETTINGS.exploration, shares_fall_after=9))
    encoded = codec.encode_settings(kept)
    assert codec.decode_settings(encoded) == kept
    assert b"shares_fall_after" not in codec.encode_settings(
        replace(kept, exploration=replace(kept.exploration, shares_fall_after=0))
    )
    with pytest.raises(CorruptDataError, match="shares_fall_after"):
        codec.decode_settings(encoded.replace(b'"shares_fall_after":9', b'"shares_fall_after":0'))


OF_ANY_TYPE = [None, True, 17, 1.5, "text", [None], {"x": None}]
UNFINITE = (math.nan, math.inf)
MAY_BE_NULL = {"candidates", "value", "least", "most", "default_reward"}
MAY_BE_MISSING = {
    "prior",
    "shares_fall_after",
    "reward_range",
    "reward_aggregation",
    "requires_activation",
    "baseline_item_ids",
    "context_schema",
    "item_schema",
    "durability",
    "rules",
    "relaxed",
    "paid",
    "reached",
}


def others_than(value: object, *, null: bool) -> list[object]:
    """Return values of other types; a whole number will do for a float."""
    same = {int, float, type(value)} if isinstance(value, float | None) else {type(value)} - {list, dict}
    wrong = [other for other in OF_ANY_TYPE if type(other) not in same and not (null and other is None)]
    return [*wrong, *UNFINITE] if isinstance(value, float) else wrong


def spoiled(document: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401, what JSON has
    """Yield copies of a document, each with a value of another type, less or more, and what the refusal must name."""
    places = range(len(document)) if isinstance(document, list) else document
    for place in places:
        value, name = document[place], "" if isinstance(place, int) else place
        inside = spoiled(value) if isinstance(value, list | dict) and value != NAMES_AND_VALUES else ()
        wrong = others_than(value, null=name in MAY_BE_NULL)
        replaced = [("byte" if other in UNFINITE else name, other) for other in wrong]
        for named, other in [*replaced, *inside]:
            copy = document.copy()
            copy[place] = other
            yield named, copy
    if isinstance(document, dict):
        for gone in document.keys() - MAY_BE_MISSING:
            left = {key: value for key, value in document.items() if key != gone}
            yield ("" if gone == "prior_study" else gone), left
        yield "surplus", {**document, "surplus": 1}


RULES = (
    SlateRule(Exclude(("a", "b"))),
    SlateRule(Filter('c in ["x"]'), may_relax=True),
    SlateRule(Pin(("a",), 1)),
    SlateRule(Count(Group("c", "x"), 1, 2)),
    SlateRule(Apart(Group("l", "y"))),
    SlateRule(Frequency(Group("c", "x"), 2, 60)),
)
EVERYTHING = replace(
    SETTINGS,
    default_reward=0.25,
    prior_study="s",
    prior_digest="d",
    reward_range=RewardRange(0.0, 1.0),
    reward_aggregation=Aggregation.SUM,
    requires_activation=True,
    baseline_item_ids=("a", "b"),
    durability=Durability(synced=True, replicas=2),
    context_schema=(Feature("n", Numeric(0.5, 1.5)), Feature("b", Boolean()), Feature("v", Vector(2, 0.5))),
    item_schema=(Feature("c", Categorical(("x",))), Feature("l", LabelSet((), 8))),
    rules=RULES,
)
PRIOR = Prior("s", 3, (ItemUtility("a", 0.5, (0.25, -1.5)),))
NAMED = Features.of({"a": 0.5, "b": True, "c": "x", "l": ("x", "y"), "v": (0.5, 1.5)})


NAMES_AND_VALUES = {name: list(value) if isinstance(value, tuple) else value for name, value in NAMED.values}


EVENTS: list[Event] = [
    EVENT,
    Recommended(replace(request(), rules=RULES), replace(recommendation(), relaxed=('filter c in ["x"]',))),
    Recommended(replace(request(), rules=RULES[-1:], reached=(("a", "b"),)), recommendation()),
    Recommended(request(), replace(recommendation(), paid=("at least 0.1 of all slates show one of c x",))),
    BanditCreated(SETTINGS),
    BanditCreated(EVERYTHING, PRIOR),
    BanditReset("reset-1"),
    EventSkipped("a bit flipped", 1_764_000_000_000),
    SettingsChanged(EVERYTHING, PRIOR),
    ItemsChanged((Item("a"), Item("b", available=False, features=NAMED)), ("c",)),
    Activated("r", SHOWN, instead=True),
    Lapsed("r"),
    RewardCollected("r", "w", 0.5),
    RewardAmended("r", 0.5),
    Rewarded("r", 1.5, SHOWN),
    Expired("r", 2.5, SHOWN),
    Expired("r", None, None),
    Imported("i", 0, (PastSlate((0.5,), ("a",), 1.5),)),
]


@pytest.mark.parametrize("event", EVENTS)
def test_a_spoiled_event_is_refused(event: Event) -> None:
    document = json.loads(codec.encode_event(event))
    assert codec.decode_event(json.dumps(document).encode()) == event
    for named, copy in spoiled(document):
        with pytest.raises(CorruptDataError) as refused:
            codec.decode_event(json.dumps(copy).encode(), wholly=True)
        assert named in str(refused.value)


@pytest.mark.parametrize("event", EVENTS)
def test_what_another_program_adds_to_an_event_is_passed_over_and_kept(event: Event) -> None:
    document = json.loads(codec.encode_event(event))
    for path, copy in with_surplus(document):
        data = json.dumps(copy).encode()
        assert codec.decode_event(data) == event
        assert json.loads(codec.written_event(data)) == copy
        with pytest.raises(CorruptDataError, match=re.escape(f"does not know the field {path}")):
            codec.decode_event(data, wholly=True)


def with_surplus(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401, what JSON has
    """Yield copies of a document, each with a field more in one of its objects, and where it is."""
    if isinstance(document, dict) and document != NAMES_AND_VALUES:
        yield f"{path}.surplus".lstrip("."), {**document, "surplus": {"a": [1]}}
    names_or_places = document if isinstance(document, dict) else range(len(document))
    for name in names_or_places:
        inner = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}".lstrip(".")
        if isinstance(document[name], dict | list) and document[name] != NAMES_AND_VALUES:
            for at, copy in with_surplus(document[name], inner):
                changed = document.copy()
                changed[name] = copy
                yield at, changed


def test_a_whole_number_is_read_as_a_float() -> None:
    document = {**json.loads(codec.encode_event(RewardAmended("r", 0.5))), "value": 2**53}
    read = codec.decode_event(json.dumps(document).encode())
    assert isinstance(read, RewardAmended)
    assert repr(read.value) == "9007199254740992.0"


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400, "NaN", "Infinity", "0x1", "01", "1.", "true"])
def test_what_is_no_finite_number_is_refused(number: str) -> None:
    encoded = codec.encode_event(RewardAmended("r", 0.5)).replace(b"0.5", number.encode())
    with pytest.raises(CorruptDataError):
        codec.decode_event(encoded)


@pytest.mark.parametrize("text", ["1e+22", "1e22", "1E22", "10000000000000000000000"])
def test_all_texts_of_a_number_are_one_number(text: str) -> None:
    encoded = codec.encode_event(RewardAmended("r", 0.5)).replace(b"0.5", text.encode())
    assert codec.decode_event(encoded) == RewardAmended("r", 1e22)


@pytest.mark.parametrize("labels", [["a", 0.5], [0.5, "a"], [1, "a"]])
def test_a_feature_of_numbers_and_texts_is_refused(labels: list[object]) -> None:
    document = json.loads(codec.encode_event(Rewarded("r", 1.5, SHOWN)))
    document["shown"]["context"] = {"mixed": labels}
    with pytest.raises(CorruptDataError, match="mixed"):
        codec.decode_event(json.dumps(document).encode())


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["mean", "position_propensities"])
def test_a_recommendation_that_is_not_finite_is_not_written(field: str, number: float) -> None:
    given_out = replace(recommendation(), **{field: number if field == "mean" else (number,)})
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_recommended(Recommended(request(), given_out))
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_context((1.0, number))


@pytest.mark.parametrize(
    "event",
    [
        Rewarded("r", 1.5, SHOWN, item_values=(None, 0.5)),
        Expired("r", 1.5, SHOWN, item_values=(None, 0.5)),
        RewardAmended("r", 1.5, item_values=(None, 0.5)),
        RewardCollected("r", "w", 1.5, item_values=(None, 0.5)),
        Imported("i", 0, (PastSlate((0.5,), ("a", "b"), 1.5, item_values=(None, 0.5)),)),
    ],
)
def test_item_values_are_written_where_there_are_any(event: Event) -> None:
    """A log without them is what it was, to the byte."""
    written = codec.encode_event(event)
    [*slates] = getattr(event, "slates", ())
    without = {"slates": (replace(slates[0], item_values=None),)} if slates else {"item_values": None}
    assert codec.decode_event(written) == event
    assert written.replace(b',"item_values":[null,0.5]', b"") == codec.encode_event(replace(event, **without))
    assert codec.written_event(written) == written
    with pytest.raises(ValueError, match="JSON"):
        codec.encode_event(Rewarded("r", 1.5, SHOWN, item_values=(None, math.inf)))


@pytest.mark.parametrize("values", [None, 0.5, "0.5", {}, [True], ["0.5"], [[0.5]]])
def test_spoiled_item_values_are_refused(values: object) -> None:
    document = json.loads(codec.encode_event(Rewarded("r", 1.5, SHOWN, item_values=(None, 0.5))))
    with pytest.raises(CorruptDataError, match="item_values"):
        codec.decode_event(json.dumps(document | {"item_values": values}).encode())


def test_items_may_be_called_null() -> None:
    event = Recommended(request(candidates=("null",)), recommendation())
    assert codec.decode_event(codec.encode_event(event)) == event


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
        {"context": [0.5], "slate": ["a"], "reward": 1.0, "at_ms": None},
        {"context": [0.5], "slate": ["a"], "reward": 1.0, "at_ms": 1.5},
        {"context": [0.5], "slate": ["a"], "reward": 1.0, "propensity": None},
        {"context": [True], "slate": ["a"], "reward": 1.0},
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
