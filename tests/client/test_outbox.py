"""What is in an outbox is delivered once, or reported; nothing of it is lost on the way."""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import threading
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.conftest import Blocking
from tests.client.outboxes import outbox_of
from tests.waiting import PATIENCE, until

from topk_bandit.client import (
    AsyncClient,
    AsyncOutbox,
    Client,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Outbox,
    Refusal,
    ResourceExhausted,
    Unavailable,
)
from topk_bandit.domain import errors
from topk_bandit.domain.bandits import MAX_SLATE_SIZE, BanditName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.client.conftest import EitherClient
    from tests.client.outboxes import EitherOutbox
    from tests.rpc.harness import RunningServer

NAME = BanditName("acme", "home")


@pytest.fixture(params=[(Client, "grpc"), (Blocking, "http")], ids=["Client", "AsyncClient"])
def client(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[EitherClient]:
    """Each kind of client by one of the ways: an outbox knows nothing of that."""
    kind, way = request.param
    with kind(server.target if way == "grpc" else server.open_http(), tenant="acme", timeout=PATIENCE) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rewards.db"


@pytest.fixture
def ids(client: EitherClient) -> list[str]:
    client.create_bandit("home", slate_size=1, item_capacity=9)
    client.upsert_items("home", ["a"])
    return [client.recommend("home").id for _ in range(5)]


@pytest.fixture
def make_outbox(client: EitherClient, path: Path) -> Iterator[Callable[..., EitherOutbox]]:
    made: list[EitherOutbox] = []

    def make(**options: Any) -> EitherOutbox:  # noqa: ANN401
        made.append(outbox_of(client, path, **options))
        return made[-1]

    yield make
    for outbox in made:
        outbox.close()


def until_left(outbox: EitherOutbox, count: int) -> None:
    until(lambda: outbox.flush(0.05) == count, what=f"{count} are left")


def wait_for_words(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the client has said, once it has said something: it may do so after the rewards were received."""

    def messages() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "topk_bandit.client"]

    until(messages, what="the client has said something")
    return messages()


def test_rewards_are_written_and_delivered_once(
    server: RunningServer, make_outbox: Callable[..., EitherOutbox], ids: list[str]
) -> None:
    outbox = make_outbox()
    assert [outbox.reward("home", one, 0.5) for one in ids] == [True] * 5
    assert outbox.flush(PATIENCE) == 0
    assert server.shop.loops[NAME].rewards == dict.fromkeys(ids, 0.5)
    status = outbox.status()
    assert (status.pending, status.oldest, status.delivered, status.refused) == (0, None, 5, {})
    assert len({reward_id for reward_id, _ in server.shop.reward_ids}) == 5


def test_item_values_are_delivered(
    server: RunningServer, make_outbox: Callable[..., EitherOutbox], ids: list[str]
) -> None:
    refused: list[Refusal] = []
    outbox = make_outbox(on_refused=refused.append)
    outbox.reward("home", ids[0], 1.0, item_values={"a": 1, "b": 0.5})
    outbox.reward("home", ids[1], 1.0)
    outbox.reward("home", "nobody", 1.0, item_values={"c": 2.0})
    assert outbox.flush(PATIENCE) == 0
    assert {"a": 1.0, "b": 0.5} in server.shop.item_values
    assert {} in server.shop.item_values
    assert [one.item_values for one in refused] == [{"c": 2.0}]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"a": math.nan}, 'item_values["a"]'),
        ({"a": "x"}, 'item_values["a"]'),
        ({"x" * 129: 1.0}, f'item_values["{"x" * 128}"]'),
        ({str(n): 1.0 for n in range(MAX_SLATE_SIZE + 1)}, "item_values"),
        ([1.0], "item_values"),
    ],
)
def test_item_values_that_no_message_can_hold_are_refused_at_once(
    make_outbox: Callable[..., EitherOutbox],
    values: Any,  # noqa: ANN401
    field: str,
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        make_outbox().reward("home", "r", 1.0, item_values=values)
    assert refused.value.field == field


def test_a_slate_without_an_id_takes_no_reward(make_outbox: Callable[..., EitherOutbox]) -> None:
    outbox = make_outbox()
    assert outbox.reward("home", "", 1.0) is False
    assert outbox.status().pending == 0


def test_rewards_wait_while_the_service_can_not_take_them(
    server: RunningServer,
    make_outbox: Callable[..., EitherOutbox],
    ids: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.shop.away = True
    outbox = make_outbox(timeout=0.3)
    before = datetime.now(tz=UTC)
    for one in ids:
        outbox.reward("home", one, 0.5)
    assert outbox.flush(0.5) == 5
    status = outbox.status()
    assert status.pending == 5
    assert status.oldest is not None
    assert before <= status.oldest <= datetime.now(tz=UTC)
    server.shop.away = False
    assert outbox.flush(PATIENCE) == 0
    assert server.shop.loops[NAME].rewards == dict.fromkeys(ids, 0.5)
    outbox.close()  # a thread tells after the file is empty
    messages = [record.getMessage() for record in caplog.records if record.name == "topk_bandit.client"]
    kinds = [line.partition(":")[0] for line in messages]
    # A call that takes longer than its deadline waits once more.
    assert kinds == ["calls wait in the outbox", "the outbox delivers again"] * (len(kinds) // 2)
    assert kinds


def test_what_one_leaves_the_next_one_delivers(
    server: RunningServer, client: EitherClient, path: Path, ids: list[str]
) -> None:
    server.shop.away = True
    first = outbox_of(client, path, timeout=0.2)
    for one in ids:
        first.reward("home", one, 0.25)
    first.close()
    with pytest.raises(Unavailable, match="closed"):
        first.reward("home", ids[0], 0.25)
    server.shop.away = False
    second = outbox_of(client, path)
    assert second.flush(PATIENCE) == 0
    second.close()
    assert server.shop.loops[NAME].rewards == dict.fromkeys(ids, 0.25)


def test_a_full_outbox_says_so(server: RunningServer, make_outbox: Callable[..., EitherOutbox], ids: list[str]) -> None:
    server.shop.away = True
    outbox = make_outbox(max_waiting=3, timeout=0.2)
    for one in ids[:3]:
        outbox.reward("home", one, 0.5)
    with pytest.raises(ResourceExhausted, match="holds 3 calls that are not delivered yet") as caught:
        outbox.reward("home", ids[3], 0.5)
    assert (caught.value.reason, caught.value.retry_after) == ("OUTBOX_FULL", None)
    assert outbox.status().pending == 3
    server.shop.away = False
    assert outbox.flush(PATIENCE) == 0
    assert outbox.reward("home", ids[3], 0.5)
    assert outbox.flush(PATIENCE) == 0
    assert set(server.shop.loops[NAME].rewards) == set(ids[:4])


def test_what_the_service_will_never_take_is_reported_and_taken_out(
    server: RunningServer, client: EitherClient, make_outbox: Callable[..., EitherOutbox], ids: list[str]
) -> None:
    refusals: list[Refusal] = []

    def note(refusal: Refusal) -> None:
        refusals.append(refusal)
        raise RuntimeError("the shop's own fault")

    outbox = make_outbox(on_refused=note)
    client.reward("home", ids[0], 0.5)
    server.shop.faults[ids[1]] = errors.InvalidArgumentError("value", "is odd")
    outbox.reward("home", ids[0], 0.75, reward_id="click")
    outbox.reward("home", ids[1], 0.5)
    outbox.reward("home", "nobody's", 0.5)
    outbox.reward("nowhere", ids[2], 0.5)
    outbox.reward("home", ids[2], 0.5)
    assert outbox.flush(PATIENCE) == 0
    server.shop.now_ms += 10**9
    outbox.reward("home", ids[3], 0.5)
    assert outbox.flush(PATIENCE) == 0
    status = outbox.status()
    assert status.delivered == 1
    assert status.refused == {"REWARD_EXISTS": 1, "INVALID_ARGUMENT": 1, "NOT_FOUND": 2, "REWARD_LATE": 1}
    assert client.late_rewards == {"home": 1}
    assert [(one.bandit, one.recommendation_id, one.value) for one in refusals][-1] == ("home", ids[3], 0.5)
    assert [one.reward_id for one in refusals if one.recommendation_id == ids[0]] == ["click"]
    kinds = [type(one.error) for one in refusals]
    assert (kinds.count(InvalidArgument), kinds.count(NotFound), kinds[-1]) == (1, 2, FailedPrecondition)


def test_without_a_listener_the_first_refusal_of_a_kind_is_logged(
    make_outbox: Callable[..., EitherOutbox], ids: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    outbox = make_outbox()
    for number in range(3):
        outbox.reward("home", f"nobody's {number}", 0.5)
    assert outbox.flush(PATIENCE) == 0
    [record] = [record for record in caplog.records if record.name == "topk_bandit.client"]
    assert (record.levelno, record.getMessage()[:35]) == (logging.WARNING, "a reward of home is not taken: NOT_")


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("a bug of the service"),
        errors.UnauthenticatedError(),
        errors.ForbiddenError("SCOPE_NEEDED", "more"),
        errors.ExhaustedError("STORE_FULL", "no memory left"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_what_may_pass_holds_up_its_own_reward_alone(
    server: RunningServer,
    make_outbox: Callable[..., EitherOutbox],
    ids: list[str],
    fault: Exception,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.shop.faults[ids[0]] = fault
    outbox = make_outbox(timeout=0.2)
    for one in ids:
        outbox.reward("home", one, 0.5)
    until_left(outbox, 1)
    assert set(server.shop.loops[NAME].rewards) == set(ids[1:])
    tries = server.shop.calls.count("reward")
    assert tries < 50
    messages = wait_for_words(caplog)
    assert messages[0].startswith("calls wait in the outbox: ")
    # Where it looked like an outage it is said that it is over; else it is said once.
    assert all(line != after for line, after in pairwise(messages))
    del server.shop.faults[ids[0]]
    assert outbox.flush(PATIENCE) == 0
    assert server.shop.loops[NAME].rewards == dict.fromkeys(ids, 0.5)


def test_rewards_of_a_slate_arrive_in_their_order(
    server: RunningServer, make_outbox: Callable[..., EitherOutbox], ids: list[str]
) -> None:
    server.shop.away = True
    outbox = make_outbox(timeout=0.2)
    for number in range(4):
        outbox.reward("home", ids[0], 0.5, reward_id=f"click-{number}", final=number == 3)
        outbox.reward("home", ids[1], 0.5)
    server.shop.away = False
    server.shop.reward_ids.clear()
    assert outbox.flush(PATIENCE) == 0
    # A call that takes longer than its deadline is sent again.
    received = dict.fromkeys(one for one in server.shop.reward_ids if one[0].startswith("click"))
    assert list(received) == [(f"click-{number}", number == 3) for number in range(4)]


def test_activations_are_delivered_and_before_the_rewards_of_their_slates(
    server: RunningServer, make_outbox: Callable[..., EitherOutbox], ids: list[str]
) -> None:
    outbox = make_outbox()
    server.close_gate()
    for one in ids:
        assert outbox.activate("home", one, shown=["a"]) is True
        outbox.reward("home", one, 0.5)
    assert outbox.activate("home", "") is False
    assert outbox.status().pending == 10
    server.open_gate()
    assert outbox.flush(PATIENCE) == 0
    # A reward that came first would have said that the slate itself was shown, and the activation would be refused.
    assert server.shop.activated == dict.fromkeys(ids, ("a",))
    assert server.shop.loops[NAME].rewards == dict.fromkeys(ids, 0.5)
    status = outbox.status()
    assert (status.delivered, status.refused) == (10, {})


def test_activations_that_one_leaves_the_next_one_delivers_once(
    server: RunningServer, client: EitherClient, path: Path, ids: list[str]
) -> None:
    server.shop.away = True
    first = outbox_of(client, path, timeout=0.2)
    first.activate("home", ids[0], shown=["a"])
    first.activate("home", ids[1])
    first.reward("home", ids[0], 0.25)
    first.close()
    server.shop.away = False
    client.activate("home", ids[1])  # it had been delivered, and the answer was lost
    second = outbox_of(client, path)
    assert second.flush(PATIENCE) == 0
    assert (second.status().delivered, second.status().refused) == (3, {})
    second.close()
    assert server.shop.activated == {ids[0]: ("a",), ids[1]: ()}
    assert server.shop.loops[NAME].rewards == {ids[0]: 0.25}


def test_activations_that_the_service_will_never_take_are_reported_and_their_rewards_go_on(
    server: RunningServer, client: EitherClient, make_outbox: Callable[..., EitherOutbox], ids: list[str]
) -> None:
    refusals: list[Refusal] = []
    outbox = make_outbox(on_refused=refusals.append)
    client.activate("home", ids[0])
    outbox.activate("home", ids[0], shown=["b"])
    outbox.reward("home", ids[0], 0.5)
    outbox.activate("home", "nobody's")
    server.shop.faults[ids[1]] = errors.InvalidArgumentError("shown_item_ids", "is odd")
    outbox.activate("home", ids[1])
    assert outbox.flush(PATIENCE) == 0
    server.shop.now_ms += 10**9
    outbox.activate("home", ids[2])
    assert outbox.flush(PATIENCE) == 0
    assert server.shop.loops[NAME].rewards == {ids[0]: 0.5}
    status = outbox.status()
    assert status.delivered == 1
    assert status.refused == {"ACTIVATION_EXISTS": 1, "NOT_FOUND": 1, "INVALID_ARGUMENT": 1, "ACTIVATION_LATE": 1}
    [exists] = [one for one in refusals if one.error.details.reason == "ACTIVATION_EXISTS"]
    assert (exists.recommendation_id, exists.value, exists.reward_id, exists.shown) == (ids[0], None, "", ("b",))
    assert client.late_rewards == {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", [RuntimeError("a bug of the service"), errors.UnauthenticatedError()], ids=repr)
def test_an_activation_that_waits_holds_up_its_own_slate_alone(
    server: RunningServer, make_outbox: Callable[..., EitherOutbox], ids: list[str], fault: Exception
) -> None:
    server.shop.faults[ids[0]] = fault
    outbox = make_outbox(timeout=0.2)
    for one in ids:
        outbox.activate("home", one)
        outbox.reward("home", one, 0.5)
    until_left(outbox, 2)
    assert set(server.shop.activated) == set(server.shop.loops[NAME].rewards) == set(ids[1:])
    del server.shop.faults[ids[0]]
    assert outbox.flush(PATIENCE) == 0
    assert set(server.shop.activated) == set(server.shop.loops[NAME].rewards) == set(ids)


def test_activations_that_no_message_can_hold_are_refused_at_once(make_outbox: Callable[..., EitherOutbox]) -> None:
    outbox = make_outbox()
    with pytest.raises(InvalidArgument) as caught:
        outbox.activate("home", "r", shown=["a", "b" * 129])
    assert caught.value.field == "shown_item_ids[1]"
    with pytest.raises(InvalidArgument) as caught:
        outbox.activate("home", "r" * 129)
    assert caught.value.field == "recommendation_id"
    for shown in ([], map(str, range(MAX_SLATE_SIZE + 1))):
        with pytest.raises(InvalidArgument) as caught:
            outbox.activate("home", "r", shown=shown)
        assert caught.value.field == "shown_item_ids"
    assert outbox.status().pending == 0


def test_what_hangs_is_sent_again(
    server: RunningServer, make_outbox: Callable[..., EitherOutbox], ids: list[str]
) -> None:
    outbox = make_outbox(timeout=0.2)
    server.close_gate()
    for one in ids:
        outbox.reward("home", one, 0.5)
    assert outbox.flush(0.5) == 5
    server.open_gate()
    assert outbox.flush(PATIENCE) == 0
    assert server.shop.loops[NAME].rewards == dict.fromkeys(ids, 0.5)
    assert outbox.status().delivered == 5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused_at_once(make_outbox: Callable[..., EitherOutbox], value: float) -> None:
    outbox = make_outbox()
    with pytest.raises(InvalidArgument) as caught:
        outbox.reward("home", "r", value)
    assert caught.value.field == "value"


@pytest.mark.parametrize("field", ["bandit", "recommendation_id", "reward_id"])
def test_an_id_that_no_message_can_hold_is_refused_at_once(
    make_outbox: Callable[..., EitherOutbox], field: str
) -> None:
    outbox = make_outbox()
    fields = {"bandit": "home", "recommendation_id": "r", "reward_id": "", "value": 1.0, field: "x" * 129}
    with pytest.raises(InvalidArgument) as caught:
        outbox.reward(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"final": "false"}, "final"),
        ({"reward_id": 7}, "reward_id"),
        ({"reward_id": "caf\ud83d"}, "reward_id"),
        ({"item_values": {"\ud83d": 1.0}}, "item_values"),
    ],
)
def test_what_no_message_can_hold_is_refused_as_the_client_refuses_it(
    client: EitherClient, make_outbox: Callable[..., EitherOutbox], wrong: dict[str, Any], field: str
) -> None:
    outbox = make_outbox()
    posted = {"bandit": "home", "recommendation_id": "r", "value": 1.0, **wrong}
    for post in (outbox.reward, client.reward):
        with pytest.raises(InvalidArgument) as caught:
            post(**posted)
        assert caught.value.field.partition("[")[0] == field
    with pytest.raises(InvalidArgument, match="bandit: is required"):
        outbox.reward(None, "r", 1.0)
    with pytest.raises(InvalidArgument, match=r"bandit: must be 1 to 64 characters .*, not 'a/b'"):
        outbox.reward("a/b", "r", 1.0)
    assert outbox.status().pending == 0
    assert outbox.reward("home", "r", 1.0, final=None)  # as for a client, nothing is no


def test_rewards_that_are_lost_with_their_file_are_reported(
    server: RunningServer, client: EitherClient, path: Path, ids: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    server.shop.away = True
    outbox = outbox_of(client, path, timeout=0.2)
    outbox.reward("home", ids[0], 0.5)
    path.unlink()
    with pytest.raises(Unavailable, match="deleted or replaced"):
        outbox.reward("home", ids[1], 0.5)
    outbox.close()
    outbox.close()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().endswith("with it 1 rewards and activations are lost")


def test_a_file_is_for_one_tenant(server: RunningServer, path: Path, target: str) -> None:
    with Client(target, tenant="acme") as acme, Client(target, tenant="other") as other:
        with Outbox(path, acme):
            pass
        with pytest.raises(ValueError, match="is the outbox of the tenant acme, not of other"):
            Outbox(path, other)


def test_a_file_that_can_not_be_one_is_refused(server: RunningServer, tmp_path: Path, target: str) -> None:
    text = tmp_path / "text"
    text.write_text("not a database " * 100)
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with Client(target, tenant="acme") as client:
        for wrong in (text, tmp_path / "none" / "rewards.db"):
            with pytest.raises(Unavailable) as caught:
                Outbox(wrong, client)
            assert caught.value.details.reason == "OUTBOX_FAILED"
        with pytest.raises(ValueError, match="another version"):
            Outbox(newer, client)


def test_the_loop_is_free_while_the_disk_is_not(server: RunningServer, path: Path, target: str) -> None:
    async def run() -> int:
        ticks = 0
        async with AsyncClient(target, tenant="acme") as client, AsyncOutbox(path, client) as outbox:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(outbox.reward("home", "r", 1.0))
            for _ in range(20):
                await asyncio.sleep(0.005)
                ticks += not writing.done()
            other.execute("ROLLBACK")
            other.close()
            assert await writing
        return ticks

    assert asyncio.run(run()) == 20


def test_an_outbox_that_nobody_closes_ends_with_its_loop(server: RunningServer, path: Path) -> None:
    async def run() -> AsyncOutbox:
        client = AsyncClient(server.target, tenant="acme", timeout=0.5)
        outbox = AsyncOutbox(path, client)
        await outbox.reward("nowhere", "r", 1.0)
        server.shop.away = True
        await asyncio.sleep(0.05)
        await client.close()
        return outbox

    outbox = asyncio.run(run())
    with sqlite3.connect(path) as other:  # a new reward, so that the sender has something to send
        other.execute(
            "INSERT INTO calls (bandit, recommendation_id, value, reward_id, final, written)"
            " VALUES ('home', 'r', 1.0, '', 0, 0)"
        )
    other.close()
    until(lambda: not outbox_threads(), what="its thread has ended")
    outbox._sender.close()


def outbox_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("topk-bandit outbox")]
