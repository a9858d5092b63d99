"""Parsing and printing JSON are, in all that they take, say and refuse, what `json_format` does.

But a number is none that only Python reads as one, a message is an object, values of features may be plain, numbers and
times are read as in files, and a list whose absence means all is not empty.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_forms import examples

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.values import read_number, read_time
from topk_bandit.rpc.json_messages import with_json
from topk_bandit.rpc.json_parsing import EMPTY_MEANS, FAST_PATH_ERRORS, map_entry_of, parser_of, values_in
from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from google.protobuf.descriptor import Descriptor, MethodDescriptor
    from google.protobuf.message import Message

    from topk_bandit.rpc.interceptors import Handler

METHODS = [method for service in DESCRIPTORS for method in service.methods]
REQUESTS = [method for method in METHODS if method.input_type.full_name.startswith("topk_bandit.")]
DURATION = "type.googleapis.com/google.protobuf.Duration"
TIMES = ["1970-01-01T00:00:00Z", "2026-11-24T10:00:00.123456789+01:00"]
OTHER_TIMES: list[Any] = [
    "2026-01-31",
    "2026-01-31 12:00",
    1_769_860_800,
    "1769860800000",
    "31.01.2026",
    "NaT",
    46053.5,
]
TEXTS_OF = {
    "google.protobuf.Timestamp": TIMES,
    "google.protobuf.Duration": ["0s", "3.5s", "-1s"],
    "google.protobuf.FieldMask": ["", "displayName,rewardRange.min"],
}
WHOLE, WHOLE_64 = {FieldDescriptor.TYPE_INT32}, {FieldDescriptor.TYPE_INT64}
EDGES: list[Any] = [
    *(0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**400),
    *(1.0, 1.5, -0.0, 1e300, 1e400, -1e400, None, True, False),
]
EDGES_AS_TEXT: list[Any] = [
    *(
        "",
        " 3 ",
        ".5",
        "NA",
        "0,5",
        "0",
        "007",
        "12",
        "-12",
        "+1",
        "1.0",
        "1e3",
        " 1",
        "1_0",
        "\u0663",
        "9223372036854775807",
        "9" * 25,
    ),
    *("NaN", "nan", "Infinity", "-Infinity", "inf", "true", "\ud800", "\U0001f600", "a\0b", "3s", "3.5"),
    *("displayName", "display_name", "MODE_EXPLORED", "KERNEL_UNSPECIFIED", "YQ==", "YQ", "_-8"),
]
EDGES_WITHIN: list[Any] = [
    *([], {}, [None], [[]], {"": None}, ["a", 1], [1.5, "NaN"], [True, 2], {"a": {}}, {"values": None}),
    {"a": {"number": 1, "text": "b"}},
    {"@type": DURATION, "value": "1s"},
]
ODD = [*EDGES, *EDGES_AS_TEXT, *EDGES_WITHIN, *TIMES, *OTHER_TIMES]


def handler_of(method: MethodDescriptor) -> Handler:
    return with_json(grpc.unary_unary_rpc_method_handler(lambda *_: None), method)


def types_within(descriptors: Iterable[Descriptor]) -> dict[str, Descriptor]:
    found: dict[str, Descriptor] = {}
    left = list(descriptors)
    while left:
        descriptor = left.pop()
        if descriptor.full_name not in found:
            found[descriptor.full_name] = descriptor
            left += [field.message_type for field in descriptor.fields if field.message_type is not None]
    return found


def outcome(parse: Callable[[bytes], Message], payload: bytes) -> tuple[str, bytes]:
    try:
        return "taken", parse(payload).SerializeToString(deterministic=True)
    except InvalidArgumentError as error:
        is_ours = "can't be read" not in error.problem
        return "refused" if is_ours else "left to the library, which refused it", b""


def library_of(method: MethodDescriptor) -> Callable[[bytes], Message]:
    """Parse as `json_format` does, once plain values of features are typed, and what it takes by mistake is refused."""

    def parse(payload: bytes) -> Message:
        try:
            content = json.loads(payload.decode(), object_pairs_hook=unique)
            read = typed(content, method.input_type)
            refused = is_taken_by_mistake(read, method.input_type)
            return by_library(None if refused else read, method.input_type)
        except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError):
            raise InvalidArgumentError("request", "is refused by the library") from None

    return parse


DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def by_library(content: object, descriptor: Descriptor) -> Message:
    return json_format.ParseDict(typed(content, descriptor), GetMessageClass(descriptor)(), max_recursion_depth=32)


def typed(content: object, descriptor: Descriptor) -> Any:  # noqa: ANN401, whatever JSON holds
    """Return JSON with the values of features in their typed form, and numbers and times in the library's."""
    if not isinstance(content, dict) or descriptor.file.package == "google.protobuf":
        return content
    found = dict(content)
    for field in descriptor.fields:
        for name in {field.name, field.json_name} & content.keys():
            entry, value = map_entry_of(field), content[name]
            inner = (entry.fields_by_name["value"] if entry is not None else field).message_type
            if inner is None:
                if field.type == FieldDescriptor.TYPE_DOUBLE:
                    found[name] = list(map(as_number, value)) if isinstance(value, list) else as_number(value)
            elif inner.full_name == "google.protobuf.Timestamp":
                found[name] = as_time(value)
            elif entry is not None and isinstance(value, dict):
                if inner.name == "FeatureValue":
                    found[name] = {key: as_typed(one) for key, one in value.items() if one is not None}
                else:
                    found[name] = {key: typed(one, inner) for key, one in value.items()}
            elif entry is None:
                found[name] = [typed(one, inner) for one in value] if isinstance(value, list) else typed(value, inner)
    return found


def as_number(value: object) -> Any:  # noqa: ANN401, whatever JSON holds
    try:
        return value if value in {"NaN", "Infinity", "-Infinity"} or not isinstance(value, str) else read_number(value)
    except ValueError:
        return value


def as_time(value: Any) -> Any:  # noqa: ANN401, whatever JSON holds
    try:
        Timestamp().FromJsonString(value)
    except (ValueError, TypeError, AttributeError):
        try:
            time = read_time(value)
        except ValueError:
            return value
        return None if time is None else time.isoformat()
    return value


def as_typed(content: object) -> Any:  # noqa: ANN401, whatever JSON holds
    if isinstance(content, list):
        if all(isinstance(one, str) for one in content):
            return {"labels": {"values": content}}
        is_vector = all(isinstance(one, int | float) and not isinstance(one, bool) for one in content)
        return {"vector": {"values": content}} if is_vector else content
    kinds = {bool: "boolean", str: "text", int: "number", float: "number"}
    return {kinds[type(content)]: content} if type(content) in kinds else content


def is_taken_by_mistake(content: object, descriptor: Descriptor) -> bool:
    """Return whether JSON has a number that only Python reads as one, a field twice, or no object where one belongs."""
    if descriptor.file.package == "google.protobuf":
        return False
    if not isinstance(content, dict):
        return True
    names = {name: field for field in descriptor.fields for name in (field.name, field.json_name)}
    if len({names[name].name for name in content if name in names}) < sum(name in names for name in content):
        return True
    for name, value in content.items():
        field = names.get(name)
        if field is None or value is None:
            continue
        if value == [] and field.full_name in EMPTY_MEANS:
            return True
        entry = map_entry_of(field)
        field = field if entry is None else entry.fields_by_name["value"]
        inner = value.values() if entry is not None and isinstance(value, dict) else value
        several = inner if isinstance(value, dict | list) and (entry is not None or field.is_repeated) else [value]
        is_feature = field.message_type is not None and field.message_type.name == "FeatureValue"
        for one in map(as_typed, several) if is_feature else several:
            is_number = field.type in NUMBERS and field.message_type is None and field.enum_type is None
            if is_number and (isinstance(one, bool) or (isinstance(one, str) and not DECIMAL.fullmatch(one))):
                return True
            if field.message_type is not None and one is not None and is_taken_by_mistake(one, field.message_type):
                return True
    return False


NUMBERS = {*WHOLE, *WHOLE_64, FieldDescriptor.TYPE_DOUBLE}


def common_scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([*field.enum_type.values_by_name, *field.enum_type.values_by_number, 99])
    if field.type in WHOLE | WHOLE_64:
        numbers = st.integers(0, 2**31 - 1)
        return numbers | numbers.map(str) if field.type in WHOLE_64 else numbers
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)
    return st.booleans() if field.type == FieldDescriptor.TYPE_BOOL else st.text(max_size=5)


def common_value(field: FieldDescriptor, *, odd: bool) -> st.SearchStrategy[Any]:
    entry = map_entry_of(field)
    if entry is not None:
        return st.dictionaries(st.text(max_size=3), common_value(entry.fields_by_name["value"], odd=odd), max_size=3)
    one = common_scalar(field) if field.message_type is None else objects(field.message_type, odd=odd)
    if odd:
        one |= st.sampled_from(ODD)
    return st.lists(one, min_size=field.full_name in EMPTY_MEANS, max_size=3) if field.is_repeated else one


@cache
def objects(descriptor: Descriptor, *, odd: bool) -> st.SearchStrategy[Any]:
    """Draw what the JSON of a message may hold; with odd values, and names twice or unknown, too."""
    if descriptor.full_name in TEXTS_OF:
        return st.sampled_from(TEXTS_OF[descriptor.full_name])
    wanted = {}
    chosen: set[str] = set()
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if odd or oneof is None or len(oneof.fields) == 1 or oneof.name not in chosen:
            chosen.add(oneof.name if oneof is not None else "")
            values = common_value(field, odd=odd)
            wanted[field.json_name] = values | st.sampled_from(ODD) if odd else values
            if odd:
                wanted[field.name] = wanted[field.json_name]
    if odd:
        wanted |= {"unknown": st.none(), "[topk_bandit.v1.extension]": st.none()}
    return st.fixed_dictionaries({}, optional=wanted)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_what_is_parsed_and_refused_is_what_the_library_parses_and_refuses(method: MethodDescriptor) -> None:
    ours, librarys = handler_of(method).request_deserializer, library_of(method)

    @settings(max_examples=examples(12))
    @given(content=objects(method.input_type, odd=False) | objects(method.input_type, odd=True) | st.sampled_from(ODD))
    def check(content: object) -> None:
        payload = json.dumps(content).encode()
        assert outcome(ours, payload) == outcome(librarys, payload)

    check()


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, descriptor in types_within(method.input_type for method in METHODS).items()
        if not descriptor.GetOptions().map_entry
    ),
)
def test_each_odd_value_of_each_field_is_taken_and_refused_as_the_library_has_it(name: str) -> None:
    descriptor = types_within(method.input_type for method in METHODS)[name]
    for field in descriptor.fields:
        for value in [*ODD, *([one] for one in ODD), *({"a": one} for one in ODD)]:
            payload = json.dumps({field.name: value}).encode()
            try:
                parsed = parser_of(descriptor)(values_in(payload))
            except FAST_PATH_ERRORS:  # left to the library, whatever that does
                continue
            librarys = by_library(json.loads(payload), descriptor)
            assert parsed.SerializeToString(deterministic=True) == librarys.SerializeToString(deterministic=True)


@pytest.mark.parametrize("method", REQUESTS, ids=lambda method: method.name)
def test_common_requests_are_not_left_to_the_library(method: MethodDescriptor) -> None:
    parse = parser_of(method.input_type)

    @settings(max_examples=examples(12))
    @given(content=objects(method.input_type, odd=False))
    def check(content: object) -> None:
        parse(values_in(json.dumps(content).encode()))

    check()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"a"',
        b"{} {}",
        b"\xff\xfe",
        b'{"bandit": "\xff"}',
        b'{"bandit": "\\ud800"}',
        b'{"bandit": "\\ud83d\\ude00"}',
        b'{"bandit": "a", "bandit": "b"}',
        b'{"features": {"a": {"number": 1}, "a": {"number": 2}}}',
        b'{"context": [NaN]}',
        b'{"context": [Infinity, -Infinity]}',
        b'{"context": [1e999]}',
        b'{"context": [1e308, 1e308]}',
        b'{"context": [1, 2.5, true]}',
        b'{"context": [1, "2"]}',
        b'{"context": "12"}',
        b'{"context": {"1": 2}}',
        b'{"candidateItemIds": "ab"}',
        b'{"candidateItemIds": {"a": 1}}',
        b'{"candidateItemIds": ["a", null]}',
        b'{"minModelVersion": "7"}',
        b'{"minModelVersion": true}',
        b'{"minModelVersion": -7}',
        b'{"minModelVersion": 7.0}',
        b'{"minModelVersion": 9223372036854775808}',
        b'{"minModelVersion": "99999999999999999999"}',
        b'{"strictCandidates": 1}',
        b'{"strictCandidates": "true"}',
        b'{"strictCandidates": null}',
        b'{"features": null}',
        b'{"features": {"a": null}}',
        b'{"features": {"a": {}}}',
        b'{"features": {"a": {"labels": {}}}}',
        b'{"features": {"a": {"number": 1, "text": null}}}',
        b'{"features": {"a": {"number": 1, "text": "b"}}}',
        b'{"features": {"a": {"vector": {"values": [1, 2]}}}}',
        b'{"features": {"\\ud800": {}}}',
        b'{"features": [1]}',
        b'{"Bandit": "a"}',
        b'{"[a.b]": 1}',
        b"[" * 90_000,
        b'{"features": ' * 90_000,
    ],
)
def test_texts_are_parsed_and_refused_as_by_the_library(payload: bytes) -> None:
    method = METHODS[0]
    assert method.name == "Recommend"
    assert outcome(handler_of(method).request_deserializer, payload) == outcome(library_of(method), payload or b"{}")


@pytest.mark.parametrize(
    ("method", "payload", "field", "problem"),
    [
        ("Recommend", b"{", "request", "is no JSON: Expecting property name"),
        ("Recommend", b"[" * 20_000, "request", "is JSON inside JSON, too deep to be read"),
        ("Recommend", b'{"bandit": "\xff"}', "request", "is not UTF-8"),
        (
            "Recommend",
            b'{"bandit": "a", "bandit": "b"}',
            "request",
            "has the key 'bandit' twice: leave one of them out",
        ),
        (
            "Recommend",
            b'{"bandit": "a", "requestId": "b", "request_id": "b"}',
            "request_id",
            "is there by both its names, requestId and request_id: leave one of them out",
        ),
        ("Recommend", b'{"context": [%s]}' % (b"9" * 5000), "request", "has a number of too many digits"),
        (
            "Recommend",
            b'{"context": [%s]}' % (b"9" * 400),
            "context[0]",
            "expected a number of some 300 digits at most, got 99",
        ),
        ("Recommend", b"null", "request", "expected an object with fields such as bandit, context"),
        ("Recommend", b'{"\\ud800": 1}', "request", "has half of a character"),
        ("Recommend", b'{"context": [0, NaN]}', "context[1]", "expected a finite number, got NaN"),
        ("Recommend", b'{"context": {"a": 1}}', "context", 'expected a list, got {"a": 1}'),
        ("Recommend", b'{"context": 3}', "context", "expected a list, got 3: write [3]"),
        ("Recommend", b'{"context": [1, true]}', "context[1]", "expected a number, got true"),
        (
            "Recommend",
            b'{"context": ["1_000"]}',
            "context[0]",
            "expected a finite number, got '1_000': write no separators",
        ),
        ("Recommend", '{"context": ["\u0663"]}'.encode(), "context[0]", "expected a finite number, got '\u0663'"),
        ("Recommend", b'{"candidateItemIds": ["a", null]}', "candidate_item_ids[1]", "expected a text, got null"),
        ("Recommend", b'{"minModelVersion": 1.5}', "min_model_version", "expected a whole number, got 1.5"),
        ("Recommend", b'{"minModelVersion": "x"}', "min_model_version", "expected a whole number, got 'x'"),
        ("Recommend", b'{"features": 3.5}', "features", 'expected an object such as {"name": value}, got 3.5'),
        (
            "Recommend",
            b'{"features": {"A": [1, "b"]}}',
            'features["A"]',
            'expected a list of texts or of numbers, got [1, "b"]',
        ),
        (
            "Recommend",
            b'{"features": {"A": {"numbr": 3}}}',
            'features["A"].numbr',
            "is no field of this message: is it number? It has number, text, boolean, labels, vector",
        ),
        (
            "Recommend",
            b'{"features": {"A": {"number": "x"}}}',
            'features["A"].number',
            "expected a finite number, got 'x'",
        ),
        ("Recommend", b'{"reward": 1}', "reward", "is no field of this message"),
        ("Recommend", b'{"contxt": [1]}', "contxt", "is no field of this message: is it context? It has"),
        ("Recommend", b'{"%s": 1}' % (b"a" * 2_000), "a" * 128, "is no field of this message"),
        ("CreateBandit", b'{"bandit": 5}', "bandit", "expected an object with fields such as name,"),
        ("CreateBandit", b'{"bandit": {"exploration": {"best": 1}}}', "bandit.exploration.best", "is no field of"),
        (
            "CreateBandit",
            b'{"bandit": {"rewardWait": "1e3s"}}',
            "bandit.reward_wait",
            "expected seconds such as \"86400s\", got '1e3s'",
        ),
        (
            "CreateBandit",
            b'{"bandit": {"kernel": "BEST"}}',
            "bandit.kernel",
            "expected a name, got 'BEST'; the names are KERNEL_",
        ),
    ],
)
def test_a_refusal_names_the_field_and_no_exception_of_python(
    method: str, payload: bytes, field: str, problem: str
) -> None:
    [described] = [one for one in METHODS if one.name == method]
    with pytest.raises(InvalidArgumentError) as refused:
        handler_of(described).request_deserializer(payload)
    assert refused.value.field == field
    assert refused.value.problem.startswith(problem)
    assert not re.search(
        r"Error|object at|int\(\)|sys\.|Failed|protobuf|topk_bandit\.v1|can't be read", refused.value.problem
    )


SLIPS: list[tuple[str, dict[str, Any], str]] = [
    (
        "Recommend",
        {"candidateItemIds": []},
        "candidate_item_ids: is an empty list, which would stand for every available",
    ),
    (
        "Activate",
        {"shown_item_ids": []},
        "shown_item_ids: is an empty list, which would stand for the recommended slate",
    ),
    ("Recommend", {"candidateItemIds": "tea"}, 'candidate_item_ids: expected a list, got \'tea\': write ["a", "b"]'),
    (
        "Recommend",
        {"candidateItemIds": [7]},
        "candidate_item_ids[0]: expected a text, got 7: write it in quotation marks",
    ),
    ("Recommend", {"candidates": ["tea"]}, "candidates: is no field of this message: is it candidate_item_ids?"),
    ("Recommend", {"context": [""]}, "context[0]: is missing, got ''"),
    ("Recommend", {"context": ["3,5"]}, "context[0]: expected a finite number, got '3,5': write a decimal point"),
    ("Recommend", {"minModelVersion": 1e30}, "min_model_version: expected a whole number from -9223372036854775808"),
    (
        "Recommend",
        {"strictCandidates": "true"},
        "strict_candidates: expected true or false, got 'true': write it without",
    ),
    (
        "Recommend",
        {"features": {"user": {"age": 3}}},
        'features["user"]: expected a text, a number, true or false, a list',
    ),
    ("Recommend", {"features": {"age": float("nan")}}, 'features["age"]: expected a finite number, got NaN: leave out'),
    ("Recommend", {"features": {"v": [1, float("inf")]}}, 'features["v"][1]: expected a finite number, got Infinity'),
    (
        "Recommend",
        {"features": {"v": [1, None]}},
        'features["v"]: expected a list of texts or of numbers, got [1, null]',
    ),
    (
        "Recommend",
        {"features": {"a": {"number": 1, "text": "b"}}},
        'features["a"]: has number and text: leave one of them',
    ),
    ("Recommend", {"features": [{"age": 3}]}, 'features: expected an object such as {"name": value}, got [{"age": 3}]'),
    ("Reward", {"reward": 1.0}, "reward: is no field of this message: is it value?"),
    ("Reward", {"id": "r"}, "id: is no field of this message: is it recommendation_id?"),
    ("Reward", {"value": "0,7"}, "value: expected a finite number, got '0,7': write a decimal point"),
    ("Reward", {"value": {"value": 1}}, 'value: expected a number, got {"value": 1}'),
    ("Reward", {"item_values": [1, 0]}, 'item_values: expected an object such as {"name": value}, got [1, 0]'),
    ("Reward", {"itemValues": {"soup": "much"}}, "item_values[\"soup\"]: expected a finite number, got 'much'"),
    ("Reward", {"item_values": {"soup": None}}, 'item_values["soup"]: expected a number, got null'),
    ("BatchReward", {"rewards": [None]}, "rewards[0]: expected an object with fields such as recommendation_id"),
    ("CreateBandit", {"name": "shop"}, "name: is no field of this message; it has bandit"),
    ("CreateBandit", {"bandit": {"rewardWait": 86400}}, 'expected seconds such as "86400s", got 86400: write "86400s"'),
    ("CreateBandit", {"bandit": {"rewardWait": "24h"}}, "got '24h': write \"86400s\""),
    ("CreateBandit", {"bandit": {"rewardWait": "0.0000000001s"}}, "bandit.reward_wait: expected seconds such as"),
    ("CreateBandit", {"bandit": {"rewardWait": "\uff15s"}}, "bandit.reward_wait: expected seconds such as"),
    ("CreateBandit", {"bandit": {"halfLife": "1.5 d"}}, "got '1.5 d': write \"129600s\""),
    ("CreateBandit", {"bandit": {"rewardWait": "PT24H"}}, "bandit.reward_wait: expected seconds such as"),
    (
        "CreateBandit",
        {"bandit": {"rewardWait": {"seconds": 3}}},
        'expected seconds such as "86400s", got {"seconds": 3}',
    ),
    (
        "CreateBandit",
        {"bandit": {"slateSize": 99999999999}},
        "expected a whole number from -2147483648 to 2147483647, got",
    ),
    (
        "CreateBandit",
        {"bandit": {"rewardRange": {"low": 0}}},
        "reward_range.low: is no field of this message; it has min, max",
    ),
    ("CreateBandit", {"bandit": {"rewardAggregation": "sum"}}, "got 'sum': is it REWARD_AGGREGATION_SUM?"),
    ("CreateBandit", {"bandit": {"kernel": True}}, "bandit.kernel: expected a name, got true; the names are"),
    (
        "CreateBandit",
        {"bandit": {"createTime": "31.01.2026"}},
        "expected a time of 2000 to 2100 such as 2026-01-31T12:00:00Z",
    ),
    ("UpdateBandit", {"updateMask": "reward_wait"}, "got 'reward_wait': write them in camel case, \"rewardWait\""),
    (
        "UpdateBandit",
        {"updateMask": ["rewardWait"]},
        'expected one text of paths such as "rewardWait,halfLife", got ["',
    ),
    ("UpdateBandit", {"updateMask": {"paths": []}}, "update_mask: expected one text of paths such as"),
    ("UpsertItems", {"items": [{"id": "tea"}]}, "items[0].id: is no field of this message: is it item_id?"),
    (
        "UpsertItems",
        {"items": ["tea"]},
        "items[0]: expected an object with fields such as item_id, unavailable, features, got",
    ),
]


@pytest.mark.parametrize(("method", "content", "problem"), SLIPS)
def test_common_slips_are_refused_with_the_field_what_was_got_and_the_remedy(
    method: str, content: dict[str, Any], problem: str
) -> None:
    [described] = [one for one in METHODS if one.name == method]
    with pytest.raises(InvalidArgumentError, match=re.escape(problem)):
        handler_of(described).request_deserializer(json.dumps(content).encode())


@pytest.mark.parametrize(
    ("method", "content", "read"),
    [
        ("Recommend", {"context": [" 3 ", "+4", ".5"]}, {"context": [3, 4, 0.5]}),
        ("Recommend", {"candidateItemIds": None, "features": {}}, {}),
        ("Reward", {"value": "7e-1"}, {"value": 0.7}),
        ("Reward", {"value": "NA"}, {}),
        ("Reward", {"itemValues": {"soup": 1, "pie": "0.5"}}, {"item_values": {"soup": 1, "pie": 0.5}}),
        ("ImportObservations", {"rows": [{"time": "2026-01-31"}]}, {"rows": [{"time": "2026-01-31T00:00:00Z"}]}),
        ("ImportObservations", {"rows": [{"time": 1_769_860_800}]}, {"rows": [{"time": "2026-01-31T12:00:00Z"}]}),
        ("ImportObservations", {"rows": [{"time": "NaT", "propensity": ""}]}, {"rows": [{}]}),
    ],
)
def test_numbers_and_times_are_read_as_in_files(method: str, content: dict[str, Any], read: dict[str, Any]) -> None:
    [described] = [one for one in METHODS if one.name == method]
    wanted = json_format.ParseDict(read, GetMessageClass(described.input_type)())
    assert handler_of(described).request_deserializer(json.dumps(content).encode()) == wanted


JSON_OF: dict[str, list[Any]] = {**TEXTS_OF, "google.protobuf.Any": [{"@type": DURATION, "value": "1s"}]}
NUMBERS_SHOWN = st.floats() | st.sampled_from([0.0, -0.0, 1e308, float("inf"), float("-inf"), float("nan")])


def messages(descriptor: Descriptor) -> st.SearchStrategy[Any]:
    """Draw messages of a type, by drawing what they are made of."""
    if descriptor.full_name in JSON_OF:
        forms = st.sampled_from(JSON_OF[descriptor.full_name])
        return forms.map(lambda one: json_format.ParseDict(one, GetMessageClass(descriptor)()))
    return st.fixed_dictionaries({}, optional={field.name: shown(field) for field in descriptor.fields}).map(
        lambda values: GetMessageClass(descriptor)(**values)
    )


def shown(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    entry = map_entry_of(field)
    if entry is not None:
        return st.dictionaries(st.text(max_size=3), shown(entry.fields_by_name["value"]), max_size=3)
    if field.message_type is not None:
        one = messages(field.message_type)
    elif field.type == FieldDescriptor.TYPE_DOUBLE:
        one = NUMBERS_SHOWN
    elif field.enum_type is not None:
        one = st.sampled_from([*field.enum_type.values_by_number, 99])
    else:
        one = common_scalar(field).map(int) if field.type in WHOLE | WHOLE_64 else common_scalar(field)
    return st.lists(one, max_size=3) if field.is_repeated else one


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_what_is_printed_is_what_the_library_prints(method: MethodDescriptor) -> None:
    show = handler_of(method).response_serializer

    @settings(max_examples=examples(8))
    @given(message=messages(method.output_type))
    def check(message: Message) -> None:
        by_library = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
        # By their words, in which the order of keys and every bit of a number shows, but not whether 1e16 has a plus.
        assert repr(json.loads(show(message))) == repr(json.loads(json.dumps(by_library)))

    check()
