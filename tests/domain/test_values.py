"""One table of values: each reader of files and JSON reads a value as the table has it, or differs for a reason."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bandits.harness import SETTINGS

from topk_bandit.bandits.contexts import check_features, read_features
from topk_bandit.bandits.imports import check_row
from topk_bandit.client import PastObservation
from topk_bandit.client.arguments import number as number_of_client
from topk_bandit.client.errors import InvalidArgument
from topk_bandit.client.features import feature_values
from topk_bandit.client.imports import requests
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.imports.columns import Columns
from topk_bandit.commands.imports.decision_log import DecisionLog
from topk_bandit.commands.imports.reading import Reading
from topk_bandit.commands.study.files import read_described
from topk_bandit.compat.personalizer.errors import PersonalizerError
from topk_bandit.compat.personalizer.features import fit_features
from topk_bandit.compat.personalizer.messages import rank_call
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Boolean, Categorical, Feature, LabelSet, Numeric, Vector, width_of
from topk_bandit.domain.json_text import JsonError, parse_json
from topk_bandit.domain.values import (
    FIRST_TIME,
    LAST_TIME,
    PointCell,
    list_hint,
    read_list,
    read_number,
    read_text,
    read_time,
)
from topk_bandit.rpc.features import features_from_proto
from topk_bandit.rpc.imports import import_request
from topk_bandit.rpc.json_messages import with_json
from topk_bandit.rpc.json_parsing import values_in
from topk_bandit.rpc.services import DESCRIPTORS
from topk_bandit.tables.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from topk_bandit.domain.features import FeatureKind

MISSING, REFUSED = "missing", "refused"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAY = datetime(2026, 1, 31, tzinfo=UTC)
KINDS: dict[str, FeatureKind] = {
    "number": Numeric(),
    "text": Categorical(buckets=4),
    "boolean": Boolean(),
    "labels": LabelSet(buckets=4),
    "vector": Vector(2),
}


class Case(NamedTuple):
    """A value, of which kind it should be, and what comes of it."""

    kind: str
    value: Any
    outcome: Any


TABLE = [
    *(Case("number", value, 3.0) for value in (3, 3.0, "3", " 3 ", "3.0", "+3", "3e0", "0.3e1", "03")),
    *(Case("number", value, 0.5) for value in (0.5, "0.5", ".5", "5e-1")),
    *(
        Case("number", value, MISSING)
        for value in (None, "", "  ", math.nan, "NaN", "nan", "NA", "N/A", "null", "None")
    ),
    *(
        Case("number", value, REFUSED)
        for value in (True, "true", "1_000", "\u0663", "0,5", "1 000", "three", "0x10", "5%")
    ),
    *(Case("number", value, REFUSED) for value in (math.inf, "inf", "-Infinity", "1e999", [3], {"a": 3})),
    *(Case("number", value, REFUSED) for value in ("1e-400", "-0." + "0" * 330 + "1", "1.234.567")),
    *(Case("number", value, 0.0) for value in ("0e-400", "0.00", "-0")),
    *(
        Case("text", value, value)
        for value in ("DE", "NaN", "null", "NA", "true", "1_000", "\u0663", "K\u00f6ln", "a,b")
    ),
    *(
        Case(kind, value, MISSING)
        for kind in ("number", "boolean", "time")
        for value in ("\\N", "<NA>", " <na> ", "NaT", "#N/A")
    ),
    *(Case("text", value, value) for value in ("\\N", "<NA>", "<na>", "nan", "NaT")),
    *(Case("labels", value, {value}) for value in ("\\N", "<NA>", "nan")),
    *(Case("text", value, "101") for value in (101, 101.0, "101")),
    *(Case("text", value, MISSING) for value in (None, "", "  ", math.nan)),
    *(Case("text", value, REFUSED) for value in (["DE"], {"a": "DE"}, math.inf, 1e300, 2.0**53)),
    *(Case("text", value, value) for value in ("101.0", "-7.00", "True", "FALSE", "1.50", "1e3", "007", "1.2340")),
    *(Case("text", value, REFUSED) for value in (" tea", "tea\u00a0", "\ttea ")),
    Case("text", 1.5, "1.5"),
    Case("text", value=True, outcome="true"),
    *(Case("boolean", value, outcome=True) for value in (True, "true", "TRUE", "True", "yes", "1", 1, 1.0, "t")),
    *(Case("boolean", value, outcome=False) for value in (False, "false", "no", "0", 0, "F")),
    *(Case("boolean", value, MISSING) for value in (None, "", math.nan, "NA", "null")),
    *(Case("boolean", value, REFUSED) for value in ("perhaps", 2, "2", 0.5, [True], "WAHR", "on", "-1", "1e-400")),
    *(Case("labels", value, {"a", "b"}) for value in (["a", "b"], "a|b", "a | b", '["a", "b"]', ["a", "b", "a"])),
    *(Case("labels", value, MISSING) for value in (None, "", "  ")),
    *(Case("labels", value, REFUSED) for value in (["a", None], ["a", ""], "a||b", "a|", "['a']", [["a"]], {"a": 1})),
    *(Case("labels", value, REFUSED) for value in ("{a,b}", "{'a', 'b'}", "{}", "[a, b]", "('a', 'b')", "(a,b)")),
    *(Case("labels", value, REFUSED) for value in ("frozenset({'a'})", 'c("a","b")', "{a|b}", '{"a": 1}', " {a} ")),
    *(Case("labels", value, REFUSED) for value in ("WrappedArray(a, b)", "ARRAY['a']", "List(a)")),
    *(Case("labels", value, {value}) for value in ("tea (green)", "(a) b", "a, b")),
    *(Case("labels", value, set(value.split("|"))) for value in ("a|\\N", "<NA>|a", "a|101.0", "a|True")),
    *(Case("labels", value, REFUSED) for value in ('["a", "b "]', '["a", " "]')),
    Case("labels", '["a", "<NA>"]', {"a", "<NA>"}),
    Case("labels", '["101.0", 102.0, true]', {"101.0", "102", "true"}),
    Case("labels", "(a)|(b)", {"(a)", "(b)"}),
    Case("labels", "a", {"a"}),
    Case("labels", ["a", 1], {"a", "1"}),
    Case("vector", ["0.5", 1], (0.5, 1.0)),
    Case("number", 1e101, REFUSED),
    Case("text", 1e-300, REFUSED),
    Case("vector", [1.0, 2.0, 3.0], REFUSED),
    *(Case("vector", value, (0.5, -1.0)) for value in ([0.5, -1], ["0.5", "-1"], "0.5|-1", "[0.5, -1]")),
    *(Case("vector", value, MISSING) for value in (None, "")),
    *(Case("vector", value, REFUSED) for value in ([0.5, None], [0.5, True], "0.5|", "0,5|1", [0.5, "x"])),
    *(Case("time", value, NOON) for value in ("2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-01-31T13:00:00+01:00")),
    *(Case("time", value, NOON) for value in ("20260131T120000Z", "2026-01-31 12:00:00 UTC", "2026-01-31t12:00:00z")),
    *(Case("time", value, NOON) for value in (1_769_860_800, 1_769_860_800_000, "1769860800", "1769860800.0")),
    *(Case("time", value, DAY) for value in ("2026-01-31", "20260131", 20_260_131)),
    *(Case("time", value, MISSING) for value in (None, "", "NA", " ")),
    *(Case("time", value, REFUSED) for value in (2026, "2026", 46053.5, "46053.5", 0, "0", True, "yesterday")),
    *(
        Case("time", value, REFUSED)
        for value in ("31.01.2026", "01/31/2026", "2026-02-30", "2026-W05", "2026-01-31T25:00")
    ),
    *(
        Case("time", value, REFUSED)
        for value in ("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00", 1e300, "1e300")
    ),
    *(Case("time", value, REFUSED) for value in ("1969-12-31", -1, 1_769_860_800_000_000, [NOON.isoformat()])),
]


def of_row(path: Path, case: Case) -> Any:  # noqa: ANN401, whatever comes of it
    """Return what a row of a file says of a feature, or of its time."""
    schema = None if case.kind == "time" else (Feature("f", KINDS[case.kind]),)
    columns = Columns.of(Named(), schema=schema, slate_size=1, context_dimension=1)
    reading = Reading(path.name, lambda: read_rows(path), columns)
    try:
        [row] = [reading.read(row) for row in reading.open_rows()]
    except InvalidArgumentError:
        return REFUSED
    found = row.time if case.kind == "time" else row.features.get("f")
    return MISSING if found is None else as_set(case, found)


def as_set(case: Case, found: Any) -> Any:  # noqa: ANN401
    return set(found) if case.kind == "labels" else found


def of_csv(folder: Path, case: Case) -> Any:  # noqa: ANN401
    path = folder / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        name = "time" if case.kind == "time" else "f"
        csv.writer(file).writerows([["item_1", "reward", "context_1", name], ["a", 1, 0, case.value]])
    return of_row(path, case)


def of_json_lines(folder: Path, case: Case) -> Any:  # noqa: ANN401
    path = folder / "rows.jsonl"
    name = "time" if case.kind == "time" else "f"
    path.write_text(json.dumps({"item_1": "a", "reward": 1, "context_1": 0, name: case.value}), encoding="utf-8")
    return of_row(path, case)


def of_parquet(folder: Path, case: Case) -> Any:  # noqa: ANN401
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = folder / "rows.parquet"
    name = "time" if case.kind == "time" else "f"
    try:
        column = arrow.array([case.value], from_pandas=False)
    except (arrow.ArrowException, TypeError):
        pytest.skip("no column of Parquet has values of such kinds")
    table = arrow.table({"item_1": ["a"], "reward": [1.0], "context_1": [0.0], name: column})
    parquet.write_table(table, path)
    return of_row(path, case)


def of_decision_log(_folder: Path, case: Case) -> Any:  # noqa: ANN401
    log = DecisionLog.of(Named(), schema=(Feature("f", KINDS.get(case.kind, Numeric())),))
    row = {
        "_label_cost": 0,
        "_label_probability": 1,
        "_label_Action": 1,
        "c": {"f": case.value, "_multi": [{"_tag": "a"}]},
    }
    if case.kind == "time":
        row |= {"Timestamp": case.value, "c": {"_multi": [{"_tag": "a"}]}}
    try:
        read = log.read_row(row)
    except InvalidArgumentError:
        return REFUSED
    found = read.time if case.kind == "time" else read.features.get("f")
    return MISSING if found is None else found


def of_personalizer(_folder: Path, case: Case) -> Any:  # noqa: ANN401
    body = json.dumps({"contextFeatures": [{"f": case.value}], "actions": [{"id": "a"}]}).encode()
    try:
        read = rank_call(body).features
    except PersonalizerError:
        return REFUSED
    found = fit_features(read, (Feature("f", KINDS[case.kind]),)).get("f")
    return MISSING if found is None else found


def of_study_files(folder: Path, case: Case) -> Any:  # noqa: ANN401
    path = folder / "items.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [["item", "f"], ["a", case.value]] if case.kind == "number" else [["item", "f"], [case.value, 1]]
        csv.writer(file).writerows(rows)
    try:
        described = read_described(path, kind="item")
    except InvalidArgumentError as error:
        return MISSING if error.problem == "is missing" else REFUSED
    return float(described.features[0, 0]) if case.kind == "number" else described.ids[0]


def of_client(_folder: Path, case: Case) -> Any:  # noqa: ANN401
    try:
        if case.kind == "time":
            row = PastObservation(["a"], 1.0, time=case.value)
            [call] = requests(
                "tenants/t/bandits/b", [row], import_id="-", first_row=0, next_row=None, skip_bad_rows=False
            )
            return of_import(call)
        if case.kind == "number" and isinstance(case.value, str):
            return number_of_client("reward", case.value)
        return of_service(case, feature_values({"f": case.value}))
    except InvalidArgument:
        return REFUSED


def of_http(_folder: Path, case: Case) -> Any:  # noqa: ANN401
    try:
        if case.kind == "time":
            row = {"itemIds": ["a"], "reward": 1, "time": case.value}
            call = {"bandit": "tenants/t/bandits/b", "importId": "-", "rows": [row]}
            return of_import(parsed("ImportObservations", call))
        return of_service(case, parsed("Recommend", {"features": {"f": case.value}}).features)
    except InvalidArgumentError:
        return REFUSED


def parsed(name: str, content: Any) -> Any:  # noqa: ANN401
    [method] = [one for service in DESCRIPTORS for one in service.methods if one.name == name]
    handler = with_json(grpc.unary_unary_rpc_method_handler(lambda *_: None), method)
    return handler.request_deserializer(json.dumps(content).encode())


def of_service(case: Case, values: Any) -> Any:  # noqa: ANN401
    """Return what a bandit takes of the features of a call."""
    schema = (Feature("f", KINDS[case.kind]),)
    try:
        features = read_features(schema, features_from_proto("features", values))
        check_features(schema, features)
    except InvalidArgumentError:
        return REFUSED
    return as_set(case, dict(features.values)["f"]) if features.values else MISSING


def of_rows(_folder: Path, case: Case) -> Any:  # noqa: ANN401
    """Return what a bandit learns of a row of ImportObservations over gRPC."""
    schema = (Feature("f", KINDS[case.kind]),)
    settings = replace(SETTINGS, context_schema=schema, context_dim=width_of(schema), slate_size=1)
    row = PastObservation(["a"], 1.0, features={"f": case.value})
    try:
        [call] = requests("tenants/t/bandits/b", [row], import_id="-", first_row=0, next_row=None, skip_bad_rows=False)
        [sent] = import_request(call)[1].rows
        found = dict(check_row(settings, sent, knows=lambda _item: True).context.values)  # type: ignore[union-attr]
    except (InvalidArgument, InvalidArgumentError):
        return REFUSED
    return as_set(case, found["f"]) if found else MISSING


def of_import(call: Any) -> Any:  # noqa: ANN401
    [row] = import_request(call)[1].rows
    if isinstance(row, InvalidArgumentError):
        return REFUSED
    return MISSING if row.at_ms is None else datetime.fromtimestamp(row.at_ms / 1000, UTC)


class Reader(NamedTuple):
    """A reader, what reaches it, and where it differs from the table for a reason."""

    read: Callable[[Path, Case], Any]
    reaches: Callable[[Case], bool]
    differs: Callable[[Case], tuple[Any, str] | None] = lambda _case: None


def in_csv(case: Case) -> tuple[Any, str] | None:
    if case.value in {"\\N", "<NA>"}:
        return MISSING, "databases and pandas write it into a cell that has no value; JSON and Parquet have null"
    if case.kind == "labels" and {"\\N", "<NA>"} & set(case.value.split("|")):
        return REFUSED, "no part of a list may be missing"
    if case.kind in {"text", "labels"} and re.search(r"(^|\|)(-?[0-9]+\.0+|True|FALSE)$", case.value):
        return REFUSED, "a cell has no kind: pandas writes the number 101 so, whose text is 101, and true as True"
    if case.kind == "text" and case.value.strip() != case.value:
        return case.value.strip() or MISSING, "blanks around a cell are layout"
    return None


def exact_in_calls(case: Case) -> tuple[Any, str] | None:
    reason = "a text in a call is exact, and a log has what calls had"
    if case.outcome == REFUSED and case.kind == "text" and isinstance(case.value, str):
        return case.value, reason
    return ({"a", "b "}, reason) if case.value == '["a", "b "]' else None


def is_text(case: Case) -> bool:
    return isinstance(case.value, str)


def in_personalizer(case: Case) -> tuple[Any, str] | None:
    if isinstance(case.value, float) and not math.isfinite(case.value):
        return REFUSED, "NaN and Infinity are no JSON"
    if exact := exact_in_calls(case):
        return exact
    if case.outcome == REFUSED:
        return MISSING, "a page is not broken by a feature: what is of another kind is left out"
    return None


def in_decision_log(case: Case) -> tuple[Any, str] | None:
    if isinstance(case.value, dict) and case.kind == "labels":
        return {"a"}, "labels are features of weight 1 in a namespace"
    return exact_in_calls(case)


def in_client(case: Case) -> tuple[Any, str] | None:
    if case.kind == "number" and isinstance(case.value, str):
        return (REFUSED, "an argument that is given is not missing") if case.outcome == MISSING else None
    if case.kind == "time" and case.value is not None:
        return REFUSED, "a time is a datetime of Python"
    return in_rows(case)


def in_rows(case: Case) -> tuple[Any, str] | None:
    if isinstance(case.value, float) and math.isnan(case.value):
        return REFUSED, "in a call NaN is a mistake"
    return in_call(case)


def in_http(case: Case) -> tuple[Any, str] | None:
    if isinstance(case.value, float) and not math.isfinite(case.value):
        return REFUSED, "NaN and Infinity are no JSON"
    return in_call(case)


def in_call(case: Case) -> tuple[Any, str] | None:
    parts = case.value if isinstance(case.value, list) else []
    if len({isinstance(part, str) for part in parts}) > 1:
        return REFUSED, "a list in a call has texts or numbers, and no mixture"
    return exact_in_calls(case)


READERS = {
    "csv": Reader(of_csv, is_text, in_csv),
    "json lines": Reader(of_json_lines, lambda _case: True),
    # A list of Parquet has values of one kind: 1 is what it makes of true among numbers.
    "parquet": Reader(of_parquet, lambda case: not isinstance(case.value, dict) and case.value != [0.5, True]),
    "decision log": Reader(of_decision_log, lambda _case: True, in_decision_log),
    "personalizer": Reader(of_personalizer, lambda case: case.kind != "time", in_personalizer),
    "study": Reader(of_study_files, lambda case: case.kind in {"number", "text"} and is_text(case), in_csv),
    "http": Reader(of_http, lambda _case: True, in_http),
    "client": Reader(of_client, lambda _case: True, in_client),
    "imported rows": Reader(of_rows, lambda case: case.kind != "time", in_rows),
}


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_reads_each_value_as_the_table_has_it(tmp_path: Path, reader: str) -> None:
    wrong = []
    for case in TABLE:
        if not READERS[reader].reaches(case):
            continue
        differs = READERS[reader].differs(case)
        try:
            found = READERS[reader].read(tmp_path, case)
        except pytest.skip.Exception:
            continue
        expected = case.outcome if differs is None else differs[0]
        if found != expected:
            wrong.append((case, found))
    assert not wrong, "\n".join(map(str, wrong))


@given(st.text(alphabet="0123456789+-eE._ \u0663,xnaif", max_size=12))
def test_what_is_a_number_python_reads_as_the_same(text: str) -> None:
    try:
        number = read_number(text)
    except ValueError:
        return
    assert number == (None if number is None else float(text))


@given(st.datetimes(), st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
def test_a_time_is_itself_or_out_of_the_range_at_either_end_of_the_calendar(time: datetime, offset: timedelta) -> None:
    zone = timezone(timedelta(minutes=offset // timedelta(minutes=1)))
    for value in (time.replace(tzinfo=zone), time.replace(tzinfo=zone).isoformat()):
        try:
            read = read_time(value)
        except ValueError:
            inside = datetime(2000, 1, 2, tzinfo=UTC), datetime(2099, 12, 31, tzinfo=UTC)
            assert not (2000 < time.year < 2099 and inside[0] < time.replace(tzinfo=zone) < inside[1])
        else:
            assert read is not None
            assert FIRST_TIME <= read < LAST_TIME
            assert read == time.replace(tzinfo=zone)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("1,234.50", "write no separators of thousands"),
        ("1'234", "write no separators of thousands"),
        ("1 234.5", "write no separators of thousands"),
        ("0,7", "write a decimal point"),
        ("1.234,50", "write a decimal point, and no separators of thousands"),
        ("1.234.567", "write no separators of thousands"),
        ("(1.5)", "write a number below 0 with the sign - before its digits"),
        ("($5)", "write a number below 0 with the sign - before its digits"),
        ("1.5-", "write a number below 0 with the sign - before its digits"),
        ("\u22125", "write a number below 0 with the sign - before its digits"),
        ("\u20135,5", "write a number below 0 with the sign - before its digits"),
        ("1.5k", "write all digits"),
        ("2 Mio", "write all digits"),
        ("'5", "leave out the apostrophe"),
        ("\u0663", "write the digits 0 to 9"),
        ("1e-400", "it would be read as 0, so write 0"),
        ("1e400", "it is too large"),
        ("TRUE", "write 1 for true, and 0 for false"),
        ("#DIV/0!", "write nothing where there is no number"),
        ("-", "write nothing where there is no number"),
        ("-$5", "leave out the unit"),
        ("CHF 5.-", "leave out the unit"),
        ("70%", "leave out the sign"),
        ("70,5 %", "leave out the sign"),
        ("34.90 EUR", "leave out the unit"),
        ("\u20ac34.90", "leave out the unit"),
        ("US$ -5", "leave out the unit"),
    ],
)
def test_numbers_as_people_write_them_are_refused_with_what_to_write(value: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"got .*: {re.escape(hint)}"):
        read_number(value)


@pytest.mark.parametrize("value", ["<5", "~5", "31.01.2026", "1/2", "#5", "5 6"])
def test_what_is_perhaps_no_number_has_no_remedy_that_would_make_it_another(value: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"got {value!r}") + "$"):
        read_number(value)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e-400", None), ("-1.5E-324000", None), ("0." + "0" * 330 + "1", None), ("0e-400", 0.0), ("1e-300", 1e-300)],
)
@pytest.mark.parametrize("parse", [parse_json, lambda text: values_in(text.encode())])
def test_a_number_of_json_that_is_too_small_is_refused(
    parse: Callable[[str], Any], text: str, number: float | None
) -> None:
    if number is not None:
        assert parse(f'{{"a": {text}}}') == {"a": number}
        return
    with pytest.raises(JsonError, match="would be read as 0: write 0"):
        parse(f'{{"a": {text}}}')


@pytest.mark.parametrize("value", ["31.01.2026", "1/31/2026", "31-01-26", "2026/01/31", "1/31/2026 12:00", "2026.1.31"])
def test_dates_in_another_order_are_refused_with_what_to_write(value: str) -> None:
    with pytest.raises(ValueError, match="write the year, the month and the day, such as 2026-01-31"):
        read_time(value)


@pytest.mark.parametrize("value", ["{garden,kitchen}", "[garden, kitchen]", "(garden)"])
def test_lists_in_another_writing_are_refused_with_what_to_write(value: str) -> None:
    with pytest.raises(ValueError, match=r"write its parts as a\|b, or as a list of JSON"):
        read_list(value)
    assert list_hint(read_list("garden, kitchen") or []) == ": write its parts as a|b, or as a list of JSON"
    assert list_hint(["garden"]) == list_hint(["a, b", "c"]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("101.00"), "101"),
        (Decimal("1.50"), "1.5"),
        (Decimal("NaN"), None),
        (b"DE", "DE"),
        (2**70, str(2**70)),
    ],
)
def test_values_of_parquet_have_their_text(value: object, text: str | None) -> None:
    assert read_text(value) == text


def test_days_of_spreadsheets_are_read_where_that_is_said() -> None:
    for value in (46053.5, "46053.5"):
        assert read_time(value, of_spreadsheet=True) == NOON
    assert read_time("2026-01-31", of_spreadsheet=True) == read_time(date(2026, 1, 31)) == DAY
    for value in (0, 1e300, "-5"):
        with pytest.raises(ValueError, match="2000 to 2100"):
            read_time(value, of_spreadsheet=True)
    for value, hint in (
        ("46053,5", "write a decimal point"),
        (PointCell("46.053"), "write 46053 if the point separates"),
    ):
        with pytest.raises(ValueError, match=f"got '{value}': {hint}"):
            read_time(value, of_spreadsheet=True)
