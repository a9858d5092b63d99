"""`topk-bandit import --format vw-dsjson`: decision logs of VW, as a service gets them."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.rpc.harness import serving
from tests.waiting import PATIENCE

from topk_bandit.client import Client, categorical, numeric
from topk_bandit.commands.cli import main
from topk_bandit.commands.imports.cells import Named
from topk_bandit.commands.imports.decision_log import DecisionLog
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Categorical, Feature, Features, LabelSet, Numeric
from topk_bandit.store.events import PastSlate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rpc.harness import RunningServer

SHARED = {"User": {"city=Paris": 1, "age": 31}, "basket": 12.5, "not.known": "x"}
EXPECTED_FEATURES = Features.of({"User.city": "Paris", "User.age": 31.0, "basket": 12.5})
AT = 1_769_860_800_000
SCHEMA = [categorical("User.city", values=["Paris"]), numeric("User.age"), numeric("basket")]

CB = {
    "_label_cost": -0.75,
    "_label_probability": 0.2,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2026-01-31T12:00:00.0000000Z",
    "Version": "1",
    "EventId": "e1",
    "a": [2, 1, 3],
    "c": {**SHARED, "_multi": [{"_tag": one, "TAction": {"topic": one.upper()}} for one in "abc"]},
    "p": [0.2, 0.7, 0.1],
    "VWState": {"m": "N/A"},
}
CCB = {
    "Timestamp": "2026-01-31T12:00:00Z",
    "Version": "1",
    "c": {**CB["c"], "_slots": [{"_id": "s1", "Slot": {"size": "large"}}, {"_id": "s2"}]},  # type: ignore[dict-item]
    "_outcomes": [
        {"_label_cost": -1.0, "_id": "s1", "_a": [2, 0, 1], "_p": [0.8, 0.1, 0.1], "_o": []},
        {"_label_cost": 0.25, "_id": "s2", "_a": [0, 1], "_p": [0.5, 0.5]},
    ],
    "VWState": {"m": "N/A"},
}
SLATES = {
    "Timestamp": "2026-01-31T12:00:00Z",
    "_label_cost": 2,
    "c": {
        **SHARED,
        "_multi": [{"_slot_id": slot, "_tag": one} for one, slot in (("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 1))],
        "_slots": [{}, {}],
    },
    "_outcomes": [{"_a": [1, 0], "_p": [0.9, 0.1]}, {"_a": 2, "_p": 0.5}],
}


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serving() as running:
        with Client(running.target, tenant="shop", timeout=PATIENCE) as client:
            client.create_bandit("one", slate_size=1, item_capacity=9, context_schema=SCHEMA)
            client.create_bandit("two", slate_size=2, item_capacity=9, context_schema=SCHEMA)
            client.create_bandit("plain", slate_size=2, item_capacity=9)
        yield running


def called(server: RunningServer, folder: Path, rows: list[Any], *flags: str, bandit: str = "shop/two") -> int:
    path = folder / "log.json"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return main(["import", bandit, str(path), "--format", "vw-dsjson", "--address", server.target, *flags])


def rows_sent(server: RunningServer) -> tuple[PastSlate, ...]:
    [sent] = server.shop.sent
    return tuple(sent.rows)


@pytest.mark.parametrize(
    ("row", "bandit", "expected", "propensity"),
    [
        (CB, "shop/one", PastSlate(EXPECTED_FEATURES, ("b",), 0.75, AT), 0.2),
        (CCB, "shop/two", PastSlate(EXPECTED_FEATURES, ("c", "a"), 0.75, AT, item_values=(1.0, -0.25)), 0.4),
        (SLATES, "shop/two", PastSlate(EXPECTED_FEATURES, ("b", "e"), -2.0, AT), 0.45),
        ({**CB, "_label_probability": 1.0000001}, "shop/one", PastSlate(EXPECTED_FEATURES, ("b",), 0.75, AT), 1.0),
    ],
)
def test_a_decision_is_an_observation(
    server: RunningServer, tmp_path: Path, row: dict[str, Any], bandit: str, expected: PastSlate, propensity: float
) -> None:
    """A cost of each slot is what its item did; one of all slots says nothing of items."""
    assert called(server, tmp_path, [row], bandit=bandit) == 0
    assert rows_sent(server) == (replace(expected, propensity=pytest.approx(propensity)),)


def test_ids_may_be_anywhere_in_an_action(server: RunningServer, tmp_path: Path) -> None:
    assert called(server, tmp_path, [CCB], "--column", "item=TAction.topic") == 0
    assert rows_sent(server)[0].slate == ("C", "A")


def test_features_that_the_bandit_does_not_have_are_named(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(server, tmp_path, [CCB]) == 0
    assert "mean nothing to the bandit: not.known" in capsys.readouterr().out
    assert called(server, tmp_path, [CCB], "--ignore", "zzz") == 1
    assert "--ignore: the file has no column 'zzz'" in capsys.readouterr().err
    assert called(server, tmp_path, [CCB], "--ignore=not.known", "--ignore=basket") == 0
    assert "mean nothing" not in capsys.readouterr().out
    assert server.shop.sent[-1].rows[0].context == Features.of({"User.city": "Paris", "User.age": 31.0})


def changed(row: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    row = copy.deepcopy(row)
    place: Any = row
    *above, last = path.split(".")
    for part in above:
        place = place[int(part) if part.isdecimal() else part]
    place[last] = value
    return row


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"RewardValue": 1.0, "EventId": "e1"}, "c._multi: is missing: the row is no decision"),
        (changed(CCB, "_outcomes", []), "_outcomes: expected a list of objects, got []; --skip-bad"),
        (changed(CCB, "_outcomes.1._label_cost", None), "_outcomes[1]._label_cost: is missing"),
        (changed(CCB, "_outcomes.0._a", [3]), "_outcomes[0]._a: names none of the 3 actions, got 3; --skip-bad"),
        (changed(CCB, "_outcomes.0._a", []), "_outcomes[0]._a: names none"),
        (changed(CCB, "_outcomes.0._a", [-1]), "_outcomes[0]._a: names none"),
        (
            changed(CCB, "_outcomes.0._p", [0.0]),
            "_outcomes[0]._p: expected a probability above 0 and at most 1, got 0.0",
        ),
        (
            changed(CCB, "_outcomes.0._p", [1.5]),
            "_outcomes[0]._p: expected a probability above 0 and at most 1, got 1.5",
        ),
        (changed(SLATES, "_outcomes.0._a", [2]), "_outcomes[0]._a: names none of the 2 actions"),
        (changed(SLATES, "_label_cost", None), "_label_cost: is missing"),
        (changed(CB, "_label_Action", 0), "_label_Action: names none of the 3 actions"),
        (changed(CCB, "c._multi.2._tag", ""), "c._multi, _tag: an action has no id there"),
        (changed(CCB, "Timestamp", "yesterday"), "Timestamp: expected a time of 2000 to 2100"),
        (changed(CCB, "_skipLearn", True), "_skipLearn: is true: the slate was never shown"),  # noqa: FBT003
    ],
)
def test_what_is_no_decision_is_named_or_left_out(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, Any], problem: str
) -> None:
    assert called(server, tmp_path, [CCB, row]) == 1
    assert f"log.json, line 2, {problem}" in capsys.readouterr().err
    assert server.shop.sent == []
    assert called(server, tmp_path, [CCB, row], "--skip-bad-rows") == 0
    assert "1 rows imported, 1 left out" in capsys.readouterr().out


def test_what_is_wrong_with_the_call_is_reported(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(server, tmp_path, [CCB], "--column", "reward=margin") == 1
    assert "a decision log has no 'reward'" in capsys.readouterr().err
    assert called(server, tmp_path, [CCB], bandit="shop/plain") == 1
    assert "has no context schema" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("actions", "path"),
    [
        ([{"Action": {"action=politics": 1}}, {"Action": {"action=sports": 1}}], "Action.action"),
        ([{"j": [{"topic": "politics"}]}, {"j": [{"topic": "sports"}]}], "j.topic"),
        ([{"j": [{"x": 1}, {"topic=politics": 1}]}, {"j": [{"topic=sports": 1}]}], "j.topic"),
        ([{"i": {"constant": 1, "id": "politics"}}, {"i": {"constant": 1, "id": "sports"}}], "i.id"),
        ([{"a.b": {"c": "politics"}}, {"a.b": {"c": "sports"}}], "a.b.c"),
        ([{"_tag": "politics"}, {"_tag": "sports"}], None),
        ([{"id": 7.0}, {"id": 8}], "id"),
    ],
)
def test_ids_of_actions_are_found_in_each_form_that_vw_writes(actions: list[dict[str, Any]], path: str | None) -> None:
    log = DecisionLog.of(Named() if path is None else Named({"item": path}), schema=())
    row = {**CB, "c": {"_multi": actions}, "_label_Action": 1, "_labelIndex": 0}
    assert log.read_row(row).items == (("7",) if path == "id" else ("politics",))


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ([{"j": [{"topic": "a"}, {"topic": "b"}]}], "an action has several there"),
        ([{"j": {}}], "an action has no id there: name it by --column item=, got"),
        ([{"j": {"topic": [{}]}}], "expected a text"),
        ([{"j": {"topic": "a", "topic=b": 1}}], "is there twice"),
    ],
)
def test_an_id_that_is_not_one_is_named(actions: list[dict[str, Any]], problem: str) -> None:
    log = DecisionLog.of(Named({"item": "j.topic"}), schema=())
    with pytest.raises(InvalidArgumentError, match=problem):
        log.read_row({**CB, "c": {"_multi": actions}, "_label_Action": 1, "_labelIndex": 0})


def test_a_feature_of_another_kind_is_refused_and_not_lost() -> None:
    log = DecisionLog.of(Named(), schema=(Feature("basket", Numeric()),))
    for value, outcome in ((3, {"basket": 3.0}), ("3", {"basket": 3.0}), (None, {}), ("NA", {})):
        assert log.read_row({**CB, "c": {"basket": value, "_multi": [{"_tag": "a"}] * 2}}).features == outcome
    for value in ("much", [1, "x"], 1e300, [1, 2], {"x": 1}, [[1]]):
        with pytest.raises(InvalidArgumentError, match=r"^c, basket: expected .* got .*; .*: --ignore basket$"):
            log.read_row({**CB, "c": {"basket": value, "_multi": [{"_tag": "a"}] * 2}})


def test_nothing_below_a_name_is_lost_in_silence() -> None:
    log = DecisionLog.of(Named(), schema=(Feature("f.x", Numeric()), Feature("User.age", Numeric())))

    def read(context: dict[str, Any]) -> Any:  # noqa: ANN401, features
        return log.read_row({**CB, "c": {**context, "_multi": [{"_tag": "a"}] * 2}}).features

    assert read({"f": [{"x": 1}, None]}) == {"f.x": 1.0}
    assert read({"User": {"age": 31}, "f.x": 2}) == {"User.age": 31.0, "f.x": 2.0}
    for context in ({"f": [{"x": 1}, 3]}, {"User": {"age": 31}, "User.age": 44}):
        with pytest.raises(
            InvalidArgumentError, match=r"^c, (f|User\.age): (expected|is there by).*--ignore (f\.x|User\.age)$"
        ):
            read(context)


@pytest.mark.parametrize(
    ("context", "features"),
    [
        ({"tags": "a|b"}, {"tags": {"a", "b"}}),
        ({"tags": {"a": 1, "b": True, "c": 0}}, {"tags": {"a", "b"}}),
        ({"tags": [{"a": 1}, None, {"b": 1}]}, {"tags": {"a", "b"}}),
        ({"tags": {"schön": 1}}, {"tags": {"schön"}}),
        ({"tags=a": 1, "tags=b": 1}, {"tags": {"a", "b"}}),
        ({"tags": ["a", "b"]}, {"tags": {"a", "b"}}),
        ({"tags=a": 1, "tags=b": 0}, {"tags": {"a"}}),
        ({"User": {"city=Paris": 1}}, {"User.city": "Paris"}),
        ({"User": {"city": {"Paris": 1}}}, {"User.city": "Paris"}),
        ({"tags": None, "User": {}}, {}),
        ({"User": {"city=Paris": 1, "city=Rome": 1}}, "expected a text, got ['Paris', 'Rome']; or"),
        ({"User": {"city": {"Paris": 1, "Rome": 1}}}, "expected a text, got ['Paris', 'Rome']; or"),
        ({"User": {"city=Paris": 0.5}}, "expected a 1 beside 'city=Paris', got 0.5; or"),
        (
            {"tags": {"a": 0.5, "b": 1}},
            "expected a 1 beside each label, got {'a': 0.5, 'b': 1}: write a list of texts; or",
        ),
        ({"tags": {"a": {"b": 1}}}, "expected a 1 beside each label, got {'a': {'b': 1}}: write a list of texts; or"),
        ({"tags": "{a,b}"}, "expected a list, got '{a,b}': write its parts as a|b, or as a list of JSON; or"),
        ({"tags": "c", "tags=a": 1}, "is there twice, as 'c' and as ['a']: leave one of them out"),
    ],
)
def test_labels_are_kept_in_each_form_that_vw_has(context: dict[str, Any], features: dict[str, Any] | str) -> None:
    schema = (Feature("tags", LabelSet(buckets=4)), Feature("User.city", Categorical(buckets=4)))
    row = {**CB, "c": {**context, "_multi": [{"_tag": "a"}] * 2}}
    log = DecisionLog.of(Named(), schema=schema)
    if isinstance(features, dict):
        assert log.read_row(row).features == features
        assert log.check_columns(list(log.columns_of(row))) == []
    else:
        with pytest.raises(InvalidArgumentError, match=f"^c, (tags|User.city): {re.escape(features)}"):
            log.read_row(row)


def test_a_decision_that_is_logged_twice_is_learned_once(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [CB, {**CB, "EventId": "e2"}, {**CB, "_label_cost": -9.0}, {**CB, "EventId": ""}, {**CB, "EventId": ""}]
    assert called(server, tmp_path, rows, bandit="shop/one") == 1
    assert "log.json, line 3, EventId: 'e1' was there before" in capsys.readouterr().err
    assert called(server, tmp_path, rows, "--skip-bad-rows", bandit="shop/one") == 0
    assert len(rows_sent(server)) == 4


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"_labelIndex": 0}, "_labelIndex: says that action 0 was shown, from 0 on, and _label_Action 2, from 1 on"),
        ({"_labelIndex": 7}, "_labelIndex: names none of the 3 actions, got 7"),
        ({"_skipLearn": 1}, "_skipLearn: is true"),
        ({"_skipLearn": "true"}, "_skipLearn: is true"),
        ({"_skipLearn": "perhaps"}, "_skipLearn: expected true or false, got 'perhaps'"),
    ],
)
def test_what_a_decision_says_twice_or_in_another_writing_is_understood(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], problem: str
) -> None:
    assert called(server, tmp_path, [{**CB, **changes}], bandit="shop/one") == 1
    assert problem in capsys.readouterr().err
    assert called(server, tmp_path, [{**CB, "_labelIndex": None, "_skipLearn": False}], bandit="shop/one") == 0
