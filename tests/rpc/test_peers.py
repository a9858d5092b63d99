"""Workers of a service among themselves: who owns a bandit, and what becomes of a call whose owner is another one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import PATIENCE, until_async

from topk_bandit.client.routing import read_worker_header
from topk_bandit.domain.calls import CURRENT_CALL
from topk_bandit.domain.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    QuotaError,
    UnavailableError,
)
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.domain.slates import Recommendation, RecommendationRequest
from topk_bandit.rpc import peers
from topk_bandit.rpc.access import AdmittedElsewhere
from topk_bandit.rpc.call_ids import call_of
from topk_bandit.rpc.failures import Failure, FailureReporter
from topk_bandit.rpc.peer_frames import Answer, Asked
from topk_bandit.rpc.peer_server import PeerServer
from topk_bandit.rpc.peers import ALONE, METHODS, MOST_AT_ONCE, PeerRefusedError, Peers, rank_workers
from topk_bandit.rpc.services import Services
from topk_bandit.rpc.unheard_calls import UnheardCalls
from topk_bandit.v1 import operator_service_pb2 as operator_pb
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.calls import Call

SLATE = Recommendation("f" * 32, ("tea",), 1.0, 0.0, 1.0, 0.5, 0.25, explored=False, model_version=7, observations=3)
RECOMMEND = "/topk_bandit.v1.RecommenderService/Recommend"
HISTORY = "/topk_bandit.v1.OperatorService/GetBanditHistory"


class Owner:
    """Use cases of a worker that owns a bandit: `gate` holds its answers, `fault` takes their place."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, RecommendationRequest, Call | None]] = []
        self.gate: asyncio.Event | None = None
        self.fault: Exception | None = None
        self.given_up = 0

    async def recommend(self, name: BanditName, wanted: RecommendationRequest, **_: object) -> Recommendation:
        self.asked.append((str(name), wanted, CURRENT_CALL.get()))
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return SLATE

    async def history(self, name: BanditName) -> None:
        self.asked.append((str(name), RecommendationRequest("", (), None), CURRENT_CALL.get()))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise


class Heard:
    """Hooks that count."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()

    def passed_on(self, outcome: str) -> None:
        self.outcomes[outcome] += 1


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a worker that answers late not be one that is away."""
    monkeypatch.setattr(peers, "SILENT_SECONDS", PATIENCE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="tkb-") as path:
        yield Path(path)


def bandit_of(worker: int, *, n_workers: int = 2) -> str:
    """Return a bandit that a worker owns."""
    names = (f"tenants/acme/bandits/b{number}" for number in range(1000))
    return next(name for name in names if rank_workers(name, n_workers)[0] == worker)


@asynccontextmanager
async def peer_server(path: Path, owner: Owner, *, max_in_flight: int = 64) -> AsyncIterator[PeerServer]:
    use_cases: Any = (owner, owner, owner, owner)
    services = Services(
        *use_cases, hooks=UnheardCalls(), access=AdmittedElsewhere(), quotas=Quotas(), max_in_flight=max_in_flight
    )
    opened = PeerServer(str(path), services=services)
    await opened.start()
    try:
        yield opened
    finally:
        await opened.drain(0.1)


@asynccontextmanager
async def worker_1(folder: Path, heard: Heard, *, n_workers: int = 2) -> AsyncIterator[Peers]:
    """The first of some workers, once it has found those that listen."""
    paths = [str(folder / f"{number}") for number in range(1, n_workers + 1)]
    async with Peers(1, paths, hooks=heard) as view:
        await until_async(lambda: all_are_found(view), what="those that listen are found")
        yield view


def all_are_found(view: Peers) -> bool:
    return all(one.is_there for one in view._others.values() if Path(one._path).exists())


async def ask(view: Peers, bandit: str) -> Any:  # noqa: ANN401 - a message, or None
    return await view.ask(RECOMMEND, bandit, pb.RecommendRequest(bandit=bandit))


async def ask_for_history(view: Peers, bandit: str) -> Any:  # noqa: ANN401 - a message, or None
    return await view.ask(HISTORY, bandit, operator_pb.GetBanditHistoryRequest(bandit=bandit))


@given(st.text(max_size=30), st.integers(1, 12), st.integers(1, 12))
def test_a_worker_that_leaves_moves_its_own_bandits_alone(name: str, n_workers: int, more: int) -> None:
    order = rank_workers(name, n_workers)
    assert sorted(order) == list(range(1, n_workers + 1))
    assert [one for one in rank_workers(name, n_workers + more) if one <= n_workers] == list(order)


def test_bandits_are_spread_evenly() -> None:
    owners = Counter(rank_workers(f"tenants/acme/bandits/b{number}", 4)[0] for number in range(4000))
    # Binomial(4000, 1/4): a standard deviation is 27.
    assert all(abs(owners[worker] - 1000) < 5 * 27 for worker in (1, 2, 3, 4)), owners


@given(st.binary(max_size=200), st.text(max_size=60), st.integers(0, 2**60), st.booleans())
def test_frames_come_back_as_they_were(payload: bytes, text: str, number: int, is_message: bool) -> None:  # noqa: FBT001
    asked = Asked(number, 3, text, text[::-1], payload)
    assert Asked.unpack(asked.pack()) == asked
    answer = Answer(number, is_message, payload)
    assert Answer.unpack(answer.pack()) == answer


def test_one_worker_owns_all_and_asks_nobody() -> None:
    assert ALONE.owns("tenants/acme/bandits/home")
    assert asyncio.run(ask(ALONE, "tenants/acme/bandits/home")) is None
    assert asyncio.run(ALONE.ask_all(METHODS[-1], pb.RecommendRequest())) == []


def test_the_owner_answers_for_the_call_that_is_served(folder: Path) -> None:
    owner, heard = Owner(), Heard()

    async def scene() -> None:
        async with peer_server(folder / "2", owner), worker_1(folder, heard) as view:
            CURRENT_CALL.set(call := call_of([("x-request-id", "page-7")]))
            answer = await ask(view, bandit_of(2))
            assert (answer.recommendation_id, list(answer.item_ids)) == (SLATE.recommendation_id, ["tea"])
            assert call.recommendation_id == SLATE.recommendation_id
            assert await ask(view, bandit_of(1)) is None
            assert (view.owns(bandit_of(1)), view.owns(bandit_of(2))) == (True, False)
            assert owner.asked[0][2].span.trace_id == call.span.trace_id  # type: ignore[union-attr]

    asyncio.run(scene())
    ((name, wanted, call),) = owner.asked
    assert name == bandit_of(2)
    assert call is not None
    assert call.request_id == "page-7"
    assert wanted.request_id, "a call that may be begun twice has an id"
    assert heard.outcomes == {"answered": 1}


REFUSALS = (
    InvalidArgumentError("context[2]", "is not a number"),
    NotFoundError("tenants/acme/bandits/gone"),
    NotReadyError("TOO_FEW_ITEMS", "2 items can be shown", items_left=2, passed_over=1, slate_size=3),
    NotReadyError("RULES_CLASH", "no slate keeps rules[0]: pin a at position 1", fields=("rules[0]",)),
    NotReadyError("RULES_CLASH", "no slate keeps these", fields=("bandit.rules[3]", "rules[0]")),
    QuotaError(Quota.OPEN_SLATES, "acme", limit=10, used=10, retry_after=2.5),
)


@pytest.mark.parametrize("fault", REFUSALS, ids=lambda fault: type(fault).__name__)
def test_what_the_owner_refuses_is_refused_with_the_same_details(folder: Path, fault: Exception) -> None:
    owner, heard = Owner(), Heard()
    owner.fault = fault

    async def scene() -> Failure:
        async with peer_server(folder / "2", owner), worker_1(folder, heard) as view:
            with pytest.raises(PeerRefusedError) as refused:
                await ask(view, bandit_of(2))
            return refused.value.failure

    reporter = FailureReporter(new_reference=lambda: "")
    assert asyncio.run(scene()) == reporter.failure(fault, call="")


def test_who_has_no_owner_to_ask_answers_itself(folder: Path) -> None:
    owner, heard = Owner(), Heard()

    async def scene() -> None:
        async with worker_1(folder, heard) as view:
            assert await ask(view, bandit_of(2)) is None  # nobody listens
            assert view.owns(bandit_of(2))
            async with peer_server(folder / "2", owner):
                await until_async(lambda: not view.owns(bandit_of(2)), what="its owner is found")
                owner.fault = UnavailableError("the store is away")
                assert await ask(view, bandit_of(2)) is None
                owner.fault = None
                assert await ask(view, bandit_of(2)) is not None
            await until_async(lambda: view.owns(bandit_of(2)), what="its owner is gone")

    asyncio.run(scene())
    assert heard.outcomes == {"away": 1, "answered": 1}


def test_a_call_whose_owner_dies_is_answered_elsewhere(folder: Path) -> None:
    owner, heard = Owner(), Heard()

    async def scene() -> None:
        owner.gate = asyncio.Event()
        async with worker_1(folder, heard) as view, peer_server(folder / "2", owner) as opened:
            await until_async(lambda: not view.owns(bandit_of(2)), what="its owner is found")
            asked = asyncio.create_task(ask(view, bandit_of(2)))
            await until_async(lambda: owner.asked, what="the owner is asked")
            drained = asyncio.create_task(opened.drain(0.0))
            assert await asked is None
            owner.gate.set()
            await drained

    asyncio.run(scene())
    assert heard.outcomes == {"away": 1}


def test_an_owner_that_has_no_place_is_not_waited_for(folder: Path) -> None:
    owner, heard = Owner(), Heard()

    async def scene() -> None:
        owner.gate = asyncio.Event()
        async with peer_server(folder / "2", owner, max_in_flight=MOST_AT_ONCE + 1), worker_1(folder, heard) as view:
            of_one = [asyncio.create_task(ask(view, bandit_of(2))) for _ in range(MOST_AT_ONCE)]
            await until_async(lambda: len(owner.asked) == MOST_AT_ONCE, what="the owner is asked")
            assert await ask(view, bandit_of(2)) is None  # as many calls about this bandit wait as may
            other = next(
                name for number in range(1000) if (name := f"tenants/a/bandits/{number}") and not view.owns(name)
            )
            of_one.append(asyncio.create_task(ask(view, other)))
            await until_async(lambda: len(owner.asked) == MOST_AT_ONCE + 1, what="the owner is asked")
            another = next(
                name for number in range(1000) if (name := f"tenants/b/bandits/{number}") and not view.owns(name)
            )
            assert await ask(view, another) is None  # and as many calls as it takes
            owner.gate.set()
            assert all(await asyncio.gather(*of_one))

    asyncio.run(scene())
    assert heard.outcomes == {"busy": 2, "answered": MOST_AT_ONCE + 1}


def test_the_worker_header_names_who_answers_and_who_owns_the_bandit(folder: Path) -> None:
    async def scene() -> None:
        async with worker_1(folder, Heard()) as view:
            service = view.worker_header().removeprefix("1/2;service=")
            assert len(service) == 8
            assert view.worker_header(bandit_of(2)) == f"1/2;service={service};owner=1", "the other one is not there"
            async with peer_server(folder / "2", Owner()):
                await until_async(lambda: not view.owns(bandit_of(2)), what="its owner is found")
                assert view.worker_header(bandit_of(2)) == f"1/2;service={service};owner=2"
                assert view.worker_header(bandit_of(1)) == f"1/2;service={service};owner=1"
            assert read_worker_header(view.worker_header(bandit_of(1))) == (1, 2, service, 1, False)
        async with worker_1(folder / "anew", Heard()) as view:
            assert service not in view.worker_header(), "another start is another service"
        assert ALONE.worker_header() == ALONE.worker_header(bandit_of(1)) == ""

    asyncio.run(scene())


def test_the_worker_header_names_no_owner_if_more_is_asked_than_the_owner_answers(folder: Path) -> None:
    owner = Owner()

    async def scene() -> None:
        owner.gate, here = asyncio.Event(), asyncio.Event()
        async with peer_server(folder / "2", owner), worker_1(folder, Heard()) as view:
            calls = [asyncio.create_task(ask(view, bandit_of(2))) for _ in range(MOST_AT_ONCE)]
            calls += [asyncio.create_task(view.answer_here(bandit_of(1), here.wait())) for _ in range(MOST_AT_ONCE)]
            await until_async(lambda: len(owner.asked) == MOST_AT_ONCE, what="the owner is asked")
            assert view.worker_header(bandit_of(1)).endswith(";owner=any")
            assert view.worker_header(bandit_of(2)).endswith(";owner=any")
            owner.gate.set()
            here.set()
            await asyncio.gather(*calls)
            assert view.worker_header(bandit_of(1)).endswith(";owner=1")
            assert view.worker_header(bandit_of(2)).endswith(";owner=2")

    asyncio.run(scene())


def test_what_nobody_waits_for_any_more_ends_at_the_owner(folder: Path) -> None:
    owner, heard = Owner(), Heard()

    async def scene() -> None:
        async with peer_server(folder / "2", owner, max_in_flight=1) as opened, worker_1(folder, heard) as view:
            for number in range(1, 4):  # each in the one place that there is
                asked = asyncio.create_task(ask_for_history(view, bandit_of(2)))
                await until_async(lambda count=number: len(owner.asked) == count, what="it is asked")  # type: ignore[misc]
                asked.cancel()
                await until_async(lambda: not opened._in_flight._works, what="its place is free")
                assert owner.given_up == number
            owner.gate = asyncio.Event()
            asked = asyncio.create_task(ask(view, bandit_of(2)))
            await until_async(lambda: len(owner.asked) == 4, what="the owner is asked")
            asked.cancel()
            assert await ask(view, bandit_of(2)) is None  # what may write is done to its end, and has its place
            owner.gate.set()
            await until_async(lambda: not opened._in_flight._works, what="its place is free")
            assert await ask(view, bandit_of(2)) is not None

    asyncio.run(scene())
    assert (owner.given_up, heard.outcomes) == (3, {"busy": 1, "answered": 1})


def test_a_name_that_no_bandit_can_have_is_not_kept(folder: Path) -> None:
    async def scene() -> None:
        async with worker_1(folder, Heard()) as view:
            known = rank_workers.cache_info().currsize
            assert await ask(view, "tenants/acme/bandits/" + "x" * 1_000_000) is None
            assert rank_workers.cache_info().currsize == known

    asyncio.run(scene())


HANGING = """
import asyncio, sys
from tests.rpc.test_peers import Owner, peer_server
from pathlib import Path

async def main():
    async with peer_server(Path(sys.argv[1]), Owner()):
        print("listens", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def stop(process: subprocess.Popen[bytes]) -> None:
    """Have a process stand still, and return once it does."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_a_worker_stops_looking_for_its_peers_at_any_step_of_the_loop(folder: Path) -> None:
    paths = [str(folder / "1"), str(folder / "2")]

    async def stop_after(steps: int) -> bool:
        view = Peers(1, paths, hooks=Heard())
        await view.__aenter__()
        for _ in range(steps):
            await asyncio.sleep(0)
        was_found = all_are_found(view)
        stopping = asyncio.create_task(view.__aexit__(None, None, None))
        for _ in range(20):
            await asyncio.sleep(0)
        assert stopping.done(), f"after {steps} steps"
        return was_found

    async def scene() -> None:
        async with peer_server(folder / "2", Owner()):
            assert {await stop_after(steps) for steps in range(40)} == {False, True}

    asyncio.run(scene())


def test_an_owner_that_hangs_is_left_and_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SILENT_SECONDS", 1.0)
    heard = Heard()
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING, str(folder / "2")], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )

    async def scene() -> None:
        async with worker_1(folder, heard) as view:
            await until_async(lambda: ask(view, bandit_of(2)), what="it answers")
            stop(process)

            async def is_left() -> bool:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):  # nobody waits for long
                        await ask_for_history(view, bandit_of(2))
                return view.owns(bandit_of(2))

            await until_async(is_left, what="it is left")
            os.kill(process.pid, signal.SIGCONT)
            await until_async(lambda: not view.owns(bandit_of(2)), what="it is found")
            stop(process)
            assert await ask(view, bandit_of(2)) is None
            # Its socket takes connections as before, and nobody is there.
            await asyncio.sleep(3 * peers.LOOK_SECONDS)
            assert view.owns(bandit_of(2))
            os.kill(process.pid, signal.SIGCONT)
            await until_async(lambda: ask(view, bandit_of(2)), what="it answers")

    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"
        asyncio.run(scene())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert heard.outcomes["answered"] == 2


def test_a_socket_that_cant_be_made_is_an_error(folder: Path) -> None:
    async def scene() -> None:
        async with peer_server(folder / ("x" * 200), Owner()):
            pass

    with pytest.raises(ConfigurationError, match="workers can't ask each other"):
        asyncio.run(scene())


def test_what_ends_while_the_owner_drains_is_answered_by_it(folder: Path) -> None:
    """The last call's answer is sent before the connection ends: else its caller's worker would begin it again."""
    owner, heard = Owner(), Heard()

    async def scene() -> list[Any]:
        owner.gate = asyncio.Event()
        async with worker_1(folder, heard) as view, peer_server(folder / "2", owner) as opened:
            await until_async(lambda: not view.owns(bandit_of(2)), what="its owner is found")
            asked = [asyncio.create_task(ask(view, bandit_of(2))) for _ in range(MOST_AT_ONCE)]
            await until_async(lambda: len(owner.asked) == MOST_AT_ONCE, what="the owner is asked")
            drained = asyncio.create_task(opened.drain(PATIENCE))
            await until_async(lambda: opened._in_flight._closed, what="the owner drains")
            owner.gate.set()
            await drained
            return await asyncio.gather(*asked)

    assert all(asyncio.run(scene()))
    assert heard.outcomes == {"answered": MOST_AT_ONCE}
