"""The commands that ask a service, against one that runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.commands.running import NOON_MS
from tests.rpc.certificates import write_pair
from tests.rpc.harness import serving
from tests.waiting import PATIENCE

from topk_bandit.client import Client, Exclude, Pin, RewardPoint
from topk_bandit.commands import reaching
from topk_bandit.commands.cli import main
from topk_bandit.commands.operate.answers import ANSWERS
from topk_bandit.commands.operate.archives import archive_lines, save
from topk_bandit.commands.operate.events import tail_log
from topk_bandit.commands.operate.parquet import read_parquet, write_parquet
from topk_bandit.commands.tables import flatten, table
from topk_bandit.domain.bandits import BanditName
from topk_bandit.domain.stages import Group
from topk_bandit.store.archives import write_line
from topk_bandit.store.events import LoggedEvent, Rewarded, Shown
from topk_bandit.store.log import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.commands.running import Ask, Running


def test_an_explanation_is_a_table_whose_parts_add_up(running: Running, ask: Ask) -> None:
    lines = ask("explain", "acme/home", running.given[14])
    assert lines == ask("explain", "tenants/acme/bandits/home", running.given[14])
    explained = {line[:15].strip(): line[15:].strip() for line in lines}
    assert explained["recommendation"] == running.given[14]
    assert explained["model"].endswith("folded again from the log")
    first = next(place for place, line in enumerate(lines) if line.startswith("adds to the mean")) + 1
    last = next(place for place, line in enumerate(lines) if line.startswith("mean "))
    parts = [float(line.split()[-1]) for line in lines[first:last]]
    assert abs(sum(parts) - float(lines[last].split()[-1])) < 1e-3
    assert lines[last + 2].split()[:3] == ["slate", "mean", "±"]
    assert lines[last + 3].startswith("shown  ")
    assert len(lines[last + 4 :]) == 10


def test_an_explanation_says_why_a_baseline_slate_was_shown(running: Running, ask: Ask) -> None:
    ask("bandits", "create", "acme/watched", "--slate-size=2", "--item-capacity=9", "--stage=shadow")
    ask("items", "create", "acme/watched", "a", "b", "c", "d")
    own = {"baseline": ["d", "a"]}

    def explained(**asked: Any) -> tuple[str, str]:  # noqa: ANN401 - as for the client
        given = running.recommend("watched", **own, **asked)
        said = reversed(ask("explain", "acme/watched", given.id))  # what is said first counts
        lines = {line[:15].strip(): line[15:].strip() for line in said}
        assert lines["slate"] == "d, a"
        return lines["how"], lines.get("best slate", "")

    how, best = explained()
    assert how == "the baseline slate, since the bandit was in shadow"
    assert len(best.split(", ")) == 2
    assert explained(candidates=["a", "x", "y"]) == (how, "")
    ask("bandits", "update", "acme/watched", "--stage=off")
    assert explained() == ("the baseline slate, since the bandit was off", "")
    ask("bandits", "update", "acme/watched", "--stage=live", "--control-share=0.9")
    key = next(key for key in "abcdefgh" if running.recommend("watched", **own, group_key=key).group is Group.CONTROL)
    assert explained(group_key=key) == ("the baseline slate, since the request was in the control group", "")
    ask("bandits", "update", "acme/watched", "--control-share=0", "--conservative-share=0.1")
    assert explained() == ("the baseline slate, since by its conservative_share the bandit had no more to lose", "")
    ask("bandits", "update", "acme/watched", "--conservative-share=0")
    assert explained(candidates=["a", "x"]) == ("the baseline slate, since too few candidates were left", "")
    ask("bandits", "delete", "acme/watched", "--yes")


def test_an_explanation_says_why_items_are_absent_and_which_rules_were_given_up(running: Running, ask: Ask) -> None:
    ask("bandits", "create", "acme/ruled", "--slate-size=2", "--item-capacity=9")
    ask("items", "create", "acme/ruled", "a", "b", "c", "d")
    rules = [Exclude(["d"]), Pin(1, ["none"], may_relax=True)]
    given = running.recommend("ruled", rules=rules)
    lines = ask("explain", "acme/ruled", given.id, "--absent=d", "--absent=none", f"--absent={given.items[0]}")
    start = lines.index("absent item  why       rule")
    assert [line.split(None, 2) for line in lines[start + 1 : start + 3]] == [
        ["d", "excluded", "exclude d"],
        ["none", "unknown", "-"],
    ]
    assert lines[start + 3] == ""
    assert [line.split(None, 3)[3] for line in lines if line.startswith("rules given up")] == ["pin none at position 1"]
    ask("bandits", "delete", "acme/ruled", "--yes")


def test_what_is_answered_is_json_for_programs(running: Running, ask: Ask) -> None:
    def answered(*words: str) -> Any:  # noqa: ANN401 - whatever JSON has
        return json.loads("\n".join(ask(*words, "--json")))

    slate = running.given[14]
    found = {
        "explain": answered("explain", "acme/home", slate)["recommendation"]["id"] == slate,
        "status": isinstance(answered("status")["window"], float),
        "tenants list": answered("tenants", "list") == ["acme"],
        "tenants stats": answered("tenants", "stats", "acme")["quotas"][3]["quota"] == "bandits",
        "bandits list": answered("bandits", "list")[0]["glance"]["observation_count"] == 20,
        "bandits get": answered("bandits", "get", "acme/home")["reward_wait"] == 86400.0,
        "bandits stats": answered("bandits", "stats", "acme/home")["observation_count"] == 20,
        "bandits history": answered("bandits", "history", "acme/home")[-1]["end_time"].endswith("Z"),
        "items list": [one["item_id"] for one in answered("items", "list", "acme/home")] == [f"i{n}" for n in range(6)],
        "items get": answered("items", "get", "acme/home", "i1")
        == {"item_id": "i1", "available": True, "features": {}},
        "replay": answered("replay", "acme/home", "--verify")["agrees"],
    }
    assert found == dict.fromkeys(ANSWERS, True)
    assert ask("items", "get", "acme/home", "none", "--json", status=1) == [
        "topk-bandit: item none of acme/home not found"
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["bandits", "history", "acme/home", "--last=0"],
        ["bandits", "create", "acme/new", "--slate-size=1", f"--item-capacity={2**31}"],
        ["events", "tail", "acme/home", "--count=-1"],
        ["events", "tail", "acme/home", f"--from={2**63}"],
        ["events", "export", "acme/home", "--from=many"],
        ["events", "skip", "acme/home", f"{2**63}", "--reason=x"],
    ],
)
def test_a_number_that_can_not_be_is_reported_with_its_word(
    ask: Ask, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        ask(*words)
    assert end.value.code == 2
    assert re.search(
        r"error: argument (--[a-z-]+|POSITION): must be (from \d to \d+|a whole number), not ", capsys.readouterr().err
    )


def test_what_is_wrong_is_said_in_one_line(ask: Ask, tmp_path: Path) -> None:
    assert ask("explain", "acme/home", "f" * 32, status=1) == [
        f"topk-bandit: NOT_FOUND: recommendation {'f' * 32} not found"
    ]
    assert "must be TENANT/BANDIT" in ask("explain", "acme", "x", status=1)[0]
    (problem,) = ask("explain", "acme/home", "x", f"--key-file={tmp_path / 'none'}", status=1)
    assert "can't be read" in problem
    bad = tmp_path / "key"
    bad.write_text("no key")
    (problem,) = ask("explain", "acme/home", "x", f"--key-file={bad}", status=1)
    assert "key must be id.secret" in problem
    (problem,) = ask("explain", "acme/home", "x", f"--tls-roots={bad}", status=1)
    assert problem == f"topk-bandit: {bad}: root_certificates has no PEM: it needs lines that begin with -----BEGIN"
    bad.write_text("-----BEGIN CERTIFICATE-----")
    (problem,) = ask("explain", "acme/home", "x", f"--tls-roots={bad}", status=1)
    assert problem == "topk-bandit: the file with the certificates to trust has none, or no whole ones"
    (problem,) = ask("explain", "acme/home", "x", "--address=127.0.0.1:1", "--timeout=0.2", status=1)
    assert problem.startswith("topk-bandit: ")


def test_tables_are_aligned_and_never_cut() -> None:
    assert list(table(("name", "count"), [("a", 7), ("b" * 90, 12)])) == [
        "name".ljust(90) + "  count",
        "a".ljust(90) + "      7",
        "b" * 90 + "     12",
    ]
    assert list(table(("name",), [])) == ["name"]


def test_bandits_and_tenants_are_listed_and_looked_at(ask: Ask) -> None:
    assert ask("tenants", "list") == ["acme"]
    stats = ask("tenants", "stats", "acme")
    assert stats[0].split() == ["bandit_count", "1"]
    assert stats[stats.index("") + 1].split() == ["quota", "used", "limit"]
    assert ["bandits", "1", "2"] in [line.split() for line in stats]
    status = ask("status")
    assert status[0].split()[0] == "service"
    assert ["store", "problems"] in [line.split()[:2] for line in status]
    assert status[status.index("") + 2].split()[:3] == ["method", "calls", "failed"]
    assert any(line.startswith("topk_bandit.v1.RecommenderService/Recommend ") for line in status)
    assert ask("tenants", "stats", "nobody", status=1) == ["topk-bandit: NOT_FOUND: tenants/nobody not found"]
    titles, row = ask("bandits", "list")
    assert titles.split()[:3] == ["bandit", "created", "events"]
    assert row.split()[0] == "acme/home"
    assert row.split()[2:6] == ["42", "0", "0", "20"]
    assert ask("bandits", "list", "acme") == [titles, row]
    assert len(ask("bandits", "list", "--containing=nothing")) == 1
    settings = dict(line.split(None, 1) for line in ask("bandits", "get", "acme/home"))
    assert (settings["slate_size"], settings["uniform_share"], settings["half_life"]) == ("2", "0.1", "-")
    assert not any(mark in value for value in settings.values() for mark in "{}<>()")
    stats = dict(line.split(None, 1) for line in ask("bandits", "stats", "acme/home"))
    assert (stats["observation_count"], stats["context_features.1.clamped_count"]) == ("20", "0")
    assert (stats["reward_times.reward_wait"], stats["reward_times.half_by"]) == ("1 day, 0:00:00", "-")
    items = ask("items", "list", "acme/home")
    assert [line.split() for line in items[1:]] == [[f"i{number}", "yes"] for number in range(6)]


def test_stats_end_with_what_has_come_by_an_age(running: Running) -> None:
    with Client(running.address, tenant="acme", timeout=PATIENCE) as client:
        stats = client.stats("home")
    points = (RewardPoint(timedelta(hours=1), 1.25), RewardPoint(timedelta(days=7), 1.0))
    known = replace(stats, reward_times=replace(stats.reward_times, points=points, half_by=timedelta(hours=1)))
    *_, empty, titles, first, last = ANSWERS["bandits stats"].lines(known)
    assert (empty, titles) == ("", "age of a slate   of its reward has come")
    assert (first.split()[-1], last.split()[-1]) == ("125.0%", "100.0%")
    assert (first.split()[0], last.split(",")[0]) == ("1:00:00", "7 days")


def test_an_address_at_which_nothing_listens_is_reported_at_once(ask: Ask, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        where = f"--address=127.0.0.1:{taken.getsockname()[1]}"
        file = tmp_path / "past.csv"
        file.write_text("items,reward\n")
        for words in (["tenants", "list"], ["import", "acme/home", str(file)]):
            [line] = ask(*words, where, status=1)
            assert "no service answers at 127.0.0.1:" in line
            assert line.endswith("Connection refused")


def test_an_address_where_something_else_is_spoken_is_reported_at_once(
    running: Running, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "_SECONDS_TO_ANSWER", PATIENCE)
    with ThreadingHTTPServer(("127.0.0.1", 0), SilentPage) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        [line] = ask("tenants", "list", f"--address=127.0.0.1:{page.server_port}", status=1)
        assert "speaks no gRPC: the address of the service's --listen is meant" in line
        page.shutdown()
    [line] = ask("tenants", "list", "--tls", status=1)
    assert line == f"topk-bandit: {running.address} speaks no TLS: leave out --tls and what goes with it"
    (tmp_path / "other").mkdir()
    roots, (stranger, _) = tmp_path / "certificate.pem", write_pair(tmp_path / "other")
    with encrypted(*(path.read_bytes() for path in write_pair(tmp_path))) as where:
        [line] = ask("tenants", "list", where, status=1)
        assert line.endswith("speaks TLS: say --tls, or --tls-roots FILE with the certificates to trust")
        [line] = ask("tenants", "list", where, f"--tls-roots={stranger}", status=1)
        assert "shows a certificate that is not trusted: self" in line
        [line] = ask("tenants", "list", where, f"--tls-roots={roots}", status=1)
        assert "UNIMPLEMENTED" in line, "it was asked"


class SilentPage(BaseHTTPRequestHandler):
    """What answers over HTTP, such as the service's own metrics."""

    def log_message(self, *_: object) -> None:
        """Say nothing where a command's own lines are read."""


@contextmanager
def encrypted(certificate: bytes, private_key: bytes) -> Iterator[str]:
    """Serve nothing over TLS, and yield the flag with the address."""
    server = grpc.server(ThreadPoolExecutor(1))
    credentials = grpc.ssl_server_credentials([(private_key, certificate)])
    flag = f"--address=127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    yield flag
    server.stop(None)


def test_an_http_address_at_which_nothing_listens_is_reported_at_once(ask: Ask) -> None:
    [line] = ask("tenants", "list", "--address=http://127.0.0.1:1", status=1)
    assert line == "topk-bandit: no service answers at http://127.0.0.1:1: Connection refused"
    [line] = ask("tenants", "list", "--address=localhost.invalid", status=1)
    assert "no service answers at port 443 of localhost.invalid, which names none: " in line


@pytest.mark.parametrize("form", ["{}", "ipv4:{}", "dns:{}", "dns:///{}"])
def test_addresses_as_grpc_has_them(running: Running, ask: Ask, form: str) -> None:
    assert ask("tenants", "list", f"--address={form.format(running.address)}") == ["acme"]


def test_an_address_that_is_none_is_reported_in_a_line(ask: Ask, tmp_path: Path) -> None:
    [line] = ask("tenants", "list", "--address=a..b:50051", status=1)
    assert "no service answers at a..b:50051" in line
    key = tmp_path / "key"
    key.write_bytes(b"\xff\xfe")
    assert len(ask("tenants", "list", f"--key-file={key}", status=1)) == 1


def test_a_key_is_the_same_after_a_mark_that_editors_write(ask: Ask, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"\xef\xbb\xbfid.secret\r\n")
    assert ask("tenants", "list", f"--key-file={key}") == ["acme"]


@pytest.mark.parametrize("item_id", ["tea ", "\ufefftea", "tea\u200b", "t\ufffda", ""])
def test_ids_that_files_could_not_name_are_refused(ask: Ask, item_id: str) -> None:
    before = ask("items", "list", "acme/home")
    [problem] = ask("items", "create", "acme/home", "salt", item_id, status=1)
    assert problem.startswith("topk-bandit: ITEM: ")
    assert ask("items", "list", "acme/home") == before


def test_nested_values_are_flattened_to_a_line_each() -> None:
    nested = {"a": {"b": 1, "c": {"d": None}}, "e": [1, 2], "f": [{"g": "x"}, {"g": ""}], "h": ()}
    assert dict(flatten(nested)) == {"a.b": 1, "a.c.d": "-", "e": "1, 2", "f.1.g": "x", "f.2.g": "-", "h": "-"}


def test_a_bandit_and_its_items_are_made_shown_and_taken_away(ask: Ask, tmp_path: Path) -> None:
    """From nothing to a slate, and back, by commands alone."""
    schema, items = tmp_path / "schema.json", tmp_path / "items.csv"
    schema.write_text('{"features": [{"name": "price", "numeric": {"min": 0, "max": 9}}]}')
    items.write_text("item,price\ntea,2.5\nmilk,1\n")
    sizes = ("--slate-size=2", "--item-capacity=9", "--context-dimension=1")
    chosen = (
        "--reward-wait=90",
        "--reward-range=0:5,trusted",
        "--reward-aggregation=max",
        "--near-share=0.2",
        "--shares-fall-after=0",
        "--durability=memory",
    )
    made = ask("bandits", "create", "acme/made", *sizes, *chosen, "--requires-activation", f"--item-schema={schema}")
    settings = dict(line.split(None, 1) for line in made)
    assert made == ask("bandits", "get", "acme/made")
    names = ("slate_size", "item_capacity", "context_dimension", "reward_wait", "near_share", "reward_aggregation")
    assert [settings[name] for name in names] == ["2", "9", "1", "0:01:30", "0.2", "max"]
    assert (settings["requires_activation"], settings["uniform_share"]) == ("True", "0.1")
    assert settings["shares_fall_after"] == "0"
    assert [settings[f"reward_range.{name}"] for name in ("low", "high", "clamp", "trusted")] == [
        *("0.0", "5.0"),
        *("False", "True"),
    ]
    assert [line.split()[1:] for line in made if line.startswith("durability")] == [["False"], ["0"]]

    changes = (
        "--default-reward=0",
        "--default-item-value=-0.5",
        "--item-capacity=12",
        "--reward-wait=60",
        "--provisional-after=1.5",
        "--shares-fall-after=70",
    )
    changed = dict(line.split(None, 1) for line in ask("bandits", "update", "acme/made", *changes))
    named = ("default_reward", "item_capacity", "reward_wait", "provisional_after", "near_share")
    assert [changed[name] for name in named] == ["0.0", "12", "0:01:00", "0:00:01.500000", "0.2"]
    assert (changed["default_item_value"], changed["shares_fall_after"]) == ("-0.5", "70")
    rules = tmp_path / "rules.json"
    often = '{"frequency": {"atMost": 2, "withinSeconds": 3600}}'
    cheap = '{"filter": "price < 2", "mayRelax": true}'
    rules.write_text(f'{{"rules": [{{"exclude": {{"itemIds": ["tea"]}}}}, {often}, {cheap}]}}')
    ruled = ask("bandits", "update", "acme/made", f"--rules={rules}")
    assert [line.split(None, 1)[1] for line in ruled if line.startswith("rules")] == [
        "exclude tea",
        "show one visitor each item at most 2 times in 1 hour",
        "filter price < 2 (may be relaxed)",
    ]
    assert ruled == ask("bandits", "get", "acme/made")
    told = [line.split(None, 1) for line in ask("bandits", "stats", "acme/made")]
    assert [words for name, words in told if name.startswith("rules")] == [
        line.split(None, 1)[1] for line in ruled if line.startswith("rules")
    ]
    rules.write_text('{"rules": []}')
    assert "rules" in [line.split()[0] for line in ask("bandits", "update", "acme/made", f"--rules={rules}")]
    assert "name no setting" in ask("bandits", "update", "acme/made", status=1)[0]
    assert "provisional_after" in ask("bandits", "update", "acme/made", "--reward-wait=1", status=1)[0]

    assert ask("items", "create", "acme/made", "salt") == ["acme/made has 1 items"]
    assert ask("items", "load", "acme/made", str(items))[-1] == "acme/made: 2 items added or changed, 0 retired"
    assert [line.split() for line in ask("items", "list", "acme/made")[1:]] == [
        ["milk", "yes", "price", "1.0"],
        ["salt", "yes"],
        ["tea", "yes", "price", "2.5"],
    ]
    assert ["features.price", "2.5"] in [line.split() for line in ask("items", "get", "acme/made", "tea")]
    assert ask("items", "get", "acme/made", "ink", status=1) == ["topk-bandit: item ink of acme/made not found"]
    assert "--yes" in ask("items", "delete", "acme/made", "tea", status=1)[0]
    assert ask("items", "delete", "acme/made", "tea", "milk", "--yes") == ["acme/made has 1 items left"]
    ask("bandits", "delete", "acme/made", "--yes")


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--reward-range=low:5", "--reward-range: must be LOW:HIGH, and then maybe ,clamp or ,trusted, not 'low:5'"),
        ("--reward-range=0:5,trust", "and then maybe ,clamp or ,trusted, not '0:5,trust'"),
        ("--durability=safe", "--durability: "),
        ("--reward-wait=1e300", "--reward-wait: "),
        ("--reward-wait=-1", "reward_wait"),
        ("--near-share=2", "near_share"),
        (
            "--context-schema={file}",
            "--context-schema, {file}, features[0].colour: is no field of this message; it has name, numeric",
        ),
        ("--context-schema={list}", '{list} must be a JSON object such as {{"features": ['),
        ("--item-schema={slip}", "features[0].numeric.max: expected a finite number, got '1,5': write a decimal point"),
        ("--item-schema={near}", "features[0].catgorical: is no field of this message: is it categorical?"),
        ("--item-schema={text}", "--item-schema: {text} is no JSON"),
        ("--rules={file}", "--rules, {file}, features: is no field of rules: name rules alone"),
        ("--rules={ruled}", "--rules, {ruled}, rules[0]: needs one of exclude, filter"),
        ("--item-schema={folder}", "can't be read: Is a directory"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_and_makes_nothing(
    ask: Ask, tmp_path: Path, flag: str, problem: str
) -> None:
    (tmp_path / "schema.json").write_text('{"features": [{"name": "price", "colour": {}}]}')
    before = ask("bandits", "list")
    words = ("bandits", "create", "acme/unmade", "--slate-size=2", "--item-capacity=9")
    (tmp_path / "text").write_text("price")
    (tmp_path / "list").write_text('[{"name": "price", "numeric": {}}]')
    (tmp_path / "slip").write_text('{"features": [{"name": "price", "numeric": {"min": 0, "max": "1,5"}}]}')
    (tmp_path / "near").write_text('{"features": [{"name": "price", "catgorical": {"values": ["a"]}}]}')
    (tmp_path / "ruled").write_text('{"rules": [{"mayRelax": true}]}')
    names = {"file": "schema.json", "folder": ".", **dict.fromkeys(("text", "list", "slip", "near", "ruled"))}
    places = {name: tmp_path / (file or name) for name, file in names.items()}
    printed = ask(*words, flag.format(**places), status=1)
    assert len(printed) == 1
    assert problem.format(**places) in printed[0]
    assert ask("bandits", "list") == before


def test_a_bandit_is_deleted_by_who_says_yes(running: Running, ask: Ask) -> None:
    running.make("spare")
    assert "--yes" in ask("bandits", "delete", "acme/spare", status=1)[0]
    assert len(ask("bandits", "list")) == 3
    assert ask("bandits", "delete", "acme/spare", "--yes") == ["deleted acme/spare"]
    assert len(ask("bandits", "list")) == 2


def test_a_bandit_forgets_for_who_says_yes(running: Running, ask: Ask) -> None:
    running.make("spare")
    with Client(running.address, tenant="acme", timeout=PATIENCE) as client:
        client.upsert_items("spare", ["a", "b"])
        client.reward("spare", client.recommend("spare").id, 1.0)
        assert "--yes" in ask("bandits", "reset", "acme/spare", status=1)[0]
        assert client.stats("spare").forgotten_count == 0
        assert ask("bandits", "reset", "acme/spare", "--yes") == ["reset acme/spare: 1 rewards are forgotten"]
        stats = client.stats("spare")
        assert (stats.observation_count, stats.forgotten_count, stats.posterior_row_count) == (1, 1, 0)
        client.delete_bandit("spare")


def test_a_history_has_a_line_for_each_interval(ask: Ask) -> None:
    titles, *rows = ask("bandits", "history", "acme/home")
    assert titles.split()[:3] == ["until", "slates", "rewards"]
    assert rows[-1].split()[2:4] == ["20", "20"]
    assert ask("bandits", "history", "acme/home", "--last=1")[1].split() == rows[-1].split()


def test_events_are_exported_as_the_log_has_them(ask: Ask, tmp_path: Path) -> None:
    lines = ask("events", "export", "acme/home")
    head, *events, end = [json.loads(line) for line in lines]
    assert (head["bandit"]["name"], end["end"]["lines"]) == ("tenants/acme/bandits/home", 43)
    assert [one["position"] for one in events] == list(range(1, 43))
    assert {one["event"]["type"] for one in events} == {"bandit_created", "items_changed", "recommended", "rewarded"}
    file = tmp_path / "log.jsonl"
    assert ask("events", "export", "acme/home", "--from=40", f"--out={file}") == []
    assert file.read_text().splitlines() == lines[40:-1]
    assert ask("events", "tail", "acme/home", "--from=41", "--count=2") == lines[41:-1]
    assert ask("events", "tail", "acme/home", "--from=0", "--count=1") == lines[1:2]
    assert "can't be written" in ask("events", "export", "acme/home", f"--out={tmp_path}", status=1)[0]


def test_the_tail_of_a_log_waits_for_what_comes(running: Running) -> None:
    with Client(running.address, tenant="acme", timeout=PATIENCE) as client:
        client.create_bandit("followed", slate_size=1, item_capacity=5)
        number = iter(range(5))
        lines = tail_log(
            client,
            "followed",
            first=None,
            count=3,
            sleep=lambda _: client.upsert_items("followed", [f"i{next(number)}"]),
        )
        events = [json.loads(line) for line in lines]
        client.delete_bandit("followed")
    assert [one["position"] for one in events] == [2, 3, 4]
    assert [one["event"]["upserted"][0][0] for one in events] == ["i0", "i1", "i2"]


def test_a_replay_tells_that_the_model_is_the_fold_of_its_log(ask: Ask) -> None:
    printed = dict(line.split(None, 1) for line in ask("replay", "acme/home", "--verify"))
    assert (printed["up"], printed["agrees"]) == ("to             42", "yes")


def test_a_replay_that_differs_is_a_failure_if_it_is_to_be_verified(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        with Client(server.target, tenant="acme", timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=1, item_capacity=2)
        where = f"--address={server.target}"
        assert main(["replay", "acme/home", where]) == 0
        printed = capsys.readouterr().out
        assert "posterior digest  2 | 3" in printed
        assert "no: the posterior differs" in printed
        assert main(["replay", "acme/home", where, "--verify"]) == 1
        assert "not the fold of its log" in capsys.readouterr().err


def test_events_are_exported_as_parquet(ask: Ask, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "log.parquet"
    assert ask("events", "export", "acme/home", f"--parquet={file}") == []
    first, *rows, last = parquet.read_table(file).to_pylist()
    head, *lines, end = ask("events", "export", "acme/home")
    assert (first["line"], last["line"], first["event"]) == (head, end, None)
    events = [json.loads(line) for line in lines]
    assert [(row["position"], json.loads(row["event"])) for row in rows] == [
        (one["position"], one["event"]) for one in events
    ]
    for row, one in zip(rows, events, strict=True):
        event = one["event"]
        assert (row["type"], round(row["time"].timestamp() * 1000)) == (event["type"], one["at_ms"])
        slate = event.get("recommendation", {})
        assert (row["propensity"], row["slate"]) == (slate.get("propensity"), slate.get("slate"))
        assert (row["value"], row["item_values"]) == (event.get("value"), event.get("item_values"))
    assert "can't be written" in ask("events", "export", "acme/home", f"--parquet={tmp_path}", status=1)[0]


def test_an_archive_that_another_program_wrote_again_is_refused_with_what_it_changed(ask: Ask, tmp_path: Path) -> None:
    file, changed = tmp_path / "log.jsonl", tmp_path / "changed.jsonl"
    assert ask("events", "export", "acme/home", f"--out={file}") == []
    content = file.read_bytes()
    for other, problem in (
        (b"", "is empty"),
        (b"\xef\xbb\xbf" + content, "begins with a byte order mark"),
        (content.replace(b"\n", b"\r\n"), "its lines end in CR LF"),
        (content + b"\n", "ends with an empty line"),
        (content.decode().encode("utf-16"), "is no text in UTF-8"),
    ):
        changed.write_bytes(other)
        (said,) = ask("events", "import", str(changed), "--as=acme/again", status=1)
        assert f"{changed}: {problem}" in said
        assert said.endswith("it is not a whole export of a bandit")
    os.mkfifo(tmp_path / "pipe")
    (said,) = ask("events", "import", str(tmp_path / "pipe"), "--as=acme/again", status=1)
    assert "pipe is a pipe or a device, and is read more than once: save it as a file first" in said
    assert "acme/again" not in " ".join(ask("bandits", "list"))


def test_an_export_is_folded_as_a_dump_is(running: Running, ask: Ask, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    texts, table_file = tmp_path / "log.jsonl", tmp_path / "log.parquet"
    assert ask("events", "export", "acme/home", f"--out={texts}") == []
    assert ask("events", "export", "acme/home", f"--parquet={table_file}") == []
    verified = running.work(running.client.verify("home"))
    folded = ask("log", "replay", str(texts))
    assert folded[0].split() == ["bandit", "tenants/acme/bandits/home"]
    assert f"{'posterior digest':24}{verified.posterior_digest}" in folded
    assert ask("log", "replay", str(table_file)) == folded
    assert ask("log", "diff", str(texts), str(table_file)) == [f"no difference up to {verified.model_version}"]
    assert ask("log", "replay", str(texts), "--to=9")[2].startswith("version                 9 ")
    head, *events, end = texts.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, lines, problem in (
        ("cut", [head, *events], "has no first or no last line of a bandit: it is not a whole export"),
        ("changed", [head, *events[1:], end], "a line was changed or is missing"),
        ("part", events[3:], "line 1: is an event: what comes before it is needed to fold a log"),
    ):
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
        assert problem in ask("log", "replay", str(tmp_path / name), status=1)[0]


def test_what_each_item_did_is_a_column_of_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    shown = Shown((1.0,), ("tea", "milk"), 1)
    events = [Rewarded("r", 1.0, shown, item_values=(0.5, None)), Rewarded("r", 1.0, shown)]
    lines = [write_line(LoggedEvent(position, NOON_MS, event)) for position, event in enumerate(events, 1)]
    write_parquet(tmp_path / "log.parquet", lines)
    assert [row["item_values"] for row in parquet.read_table(tmp_path / "log.parquet").to_pylist()] == [
        [0.5, None],
        None,
    ]
    assert [*read_parquet(tmp_path / "log.parquet")] == lines


def test_a_bandit_whose_log_is_trimmed_while_it_is_read_is_read_anew(running: Running, tmp_path: Path) -> None:
    name, file = BanditName("acme", "trimmed"), tmp_path / "log.jsonl"
    trims = []

    class Trimming(Client):
        def export_state(self, bandit: str, *, timeout: float | None = None) -> Iterator[str]:
            yield from super().export_state(bandit, timeout=timeout)
            if not trims:
                trims.append(asyncio.run_coroutine_threadsafe(trim(), running._loop).result(timeout=PATIENCE))

    async def trim() -> None:
        record = await running.store.get_bandit(name)
        for position in (1, 2):
            snapshot = Snapshot(position, b"nobody reads it")
            incarnation = record.incarnation
            assert await running.store.save_snapshot(name, snapshot, incarnation=incarnation, behind=position - 1)

    with Trimming(running.address, tenant="acme", timeout=PATIENCE) as client:
        client.create_bandit("trimmed", slate_size=1, item_capacity=2)
        for item_id in ("a", "b"):
            client.upsert_items("trimmed", [item_id])
        save(lambda: archive_lines(client, "trimmed"), file)
        client.delete_bandit("trimmed")
    assert len(trims) == 1
    kinds = [next(iter(json.loads(line))) for line in file.read_text().splitlines()]
    assert kinds == ["bandit", "snapshot", "items", "items", "position", "position", "end"]
