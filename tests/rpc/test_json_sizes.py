"""A body of JSON has as many values as its fields may hold, and one with more costs next to nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_forms import examples
from tests.rpc.test_json_messages import METHODS, REQUESTS, objects, types_within

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.rpc.json_messages import with_json
from topk_bandit.rpc.json_parsing import map_entry_of
from topk_bandit.rpc.json_sizes import FEWEST, MOST_OF_FIELDS, check_size, most_values
from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, MethodDescriptor

LIMIT = 8_388_608


def method_named(name: str) -> MethodDescriptor:
    [method] = [one for service in DESCRIPTORS for one in service.methods if one.name == name]
    return method


def test_each_repeated_field_of_a_request_says_how_many_it_may_have() -> None:
    types = types_within(method.input_type for method in REQUESTS).values()
    repeated = {
        field.full_name.removeprefix("topk_bandit.v1.")
        for descriptor in types
        for field in descriptor.fields
        if field.is_repeated and descriptor.full_name.startswith("topk_bandit.")
    }
    assert repeated == set(MOST_OF_FIELDS)


def fullest(descriptor: Descriptor) -> Any:  # noqa: ANN401, whatever JSON holds
    """Return the JSON of a message with as much of everything as it may have, up to some thousand of each."""
    if descriptor.file.package == "google.protobuf":
        return {"seconds": 1} if not descriptor.fields else ""
    values: dict[str, Any] = {}
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is not None and field != max(oneof.fields, key=lambda one: len(json.dumps(_value(one)))):
            continue
        values[field.name] = _value(field)
    return values


def _value(field: Any) -> Any:  # noqa: ANN401, descriptors and whatever JSON holds
    entry = map_entry_of(field)
    count = min(MOST_OF_FIELDS.get(field.full_name.removeprefix("topk_bandit.v1."), 1), 40)
    if entry is not None:
        return {f"a,{number}": _value(entry.fields_by_name["value"]) for number in range(count)}
    one = 'a,[{\\"' if field.message_type is None else fullest(field.message_type)
    return [one] * count if field.is_repeated else one


@pytest.mark.parametrize("method", REQUESTS, ids=lambda method: method.name)
def test_a_full_request_is_not_too_large_whatever_its_texts_are(method: MethodDescriptor) -> None:
    check_size(json.dumps(fullest(method.input_type)).encode(), method.input_type)

    @settings(max_examples=examples(10))
    @given(content=objects(method.input_type, odd=False))
    def check(content: object) -> None:
        check_size(json.dumps(content).encode(), method.input_type)

    check()


BODIES = {
    "ones": b'{"context": [' + b"1," * (LIMIT // 2 - 20) + b'"a"]}',
    "features": b'{"features": {' + b",".join(b'"%d":{"number":1}' % number for number in range(320_000)) + b"}}",
    "objects": b'{"candidateItemIds": [' + b"{}," * (LIMIT // 3 - 20) + b"{}]}",
    "unknown lists": b'{"x": [' + b"[]," * (LIMIT // 3 - 20) + b"[]]}",
    "unknown keys": b"{" + b",".join(b'"k%d":1' % number for number in range(600_000)) + b"}",
    "texts": b'{"context": [' + b'"",' * (LIMIT // 3 - 20) + b'""]}',
    "nested": b'{"a":' * (LIMIT // 6),
    "escapes": b'{"bandit": "' + b'\\"' * (LIMIT // 2 - 20) + b'", "context": [' + b"1," * 100_000 + b"1]}",
}


@pytest.mark.parametrize("name", BODIES)
def test_what_holds_more_is_refused_before_it_is_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object, **__: object) -> None:
        raise AssertionError("was parsed")

    monkeypatch.setattr("topk_bandit.rpc.json_messages.values_in", parse)
    monkeypatch.setattr("topk_bandit.rpc.json_messages.parse_json", parse)
    handler = with_json(grpc.unary_unary_rpc_method_handler(lambda *_: None), method_named("Recommend"))
    with pytest.raises(InvalidArgumentError, match=r"holds more than the [0-9]+ values that its fields may have"):
        handler.request_deserializer(BODIES[name])


@given(st.text(alphabet=',[{"\\a}]:', max_size=60))
def test_separators_in_texts_do_not_count(text: str) -> None:
    descriptor = method_named("GetBandit").input_type
    # A brace, a comma, a bracket, and a comma less than there are numbers.
    body = {"name": text, "x": [0] * (FEWEST - 2)}
    check_size(json.dumps(body).encode(), descriptor)
    body["x"] += [0]
    with pytest.raises(InvalidArgumentError, match="holds more than"):
        check_size(json.dumps(body).encode(), descriptor)


def test_limits_are_small_where_fields_are_few() -> None:
    sizes = {method.name: most_values(method.input_type) for method in METHODS if method in REQUESTS}
    assert sizes["Recommend"] < 50_000
    assert sizes["BatchReward"] < 130_000
    assert sizes["BatchRecommend"] == 700_000
    assert sizes["Reward"] < 130
