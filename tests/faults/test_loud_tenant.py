"""One tenant sends many times its quota while nine others shop: a real service with keys on the embedded store."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from typing import TYPE_CHECKING

import grpc
from tests.faults.service import serving
from tests.rpc.wire import refusal_of
from tests.waiting import PATIENCE, until

from topk_bandit.client import AsyncClient, Client, ResourceExhausted, RetryPolicy, Source
from topk_bandit.domain.access import EVERY_TENANT, Scope
from topk_bandit.rpc.keys import KeyRing, new_key, print_keys
from topk_bandit.v1 import recommender_service_pb2 as pb
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

LOUD = "loud"
OTHERS = [f"quiet-{number}" for number in range(9)]
QUOTA = 2
FLOOD = 500
MOST_WAITING = 100
VISITS = 15
PAUSE = 0.1
ONCE = RetryPolicy(initial_backoff=1000.0, max_backoff=1000.0)


def secret(tenant: str) -> str:
    return tenant.replace(EVERY_TENANT, "all").ljust(43, "_")


def key(tenant: str) -> str:
    return f"{tenant.replace(EVERY_TENANT, 'all')}.{secret(tenant)}"


def write_keys(file: Path, *tenants: str) -> None:
    made = [
        new_key(key_id=key(tenant).partition(".")[0], secret=secret(tenant), tenant=tenant, scopes=Scope, created="")
        for tenant in tenants
    ]
    file.write_text(print_keys(KeyRing(made)))


def client(service: Service, tenant: str) -> Client:
    return Client(service.address, tenant=tenant, key=key(tenant), timeout=PATIENCE)


def refusals(service: Service) -> dict[str, float]:
    """Return what the metrics count, by quota."""
    page = service.page("/metrics")[1]
    found = re.findall(r'^topk_bandit_quota_refusals_total\{quota="(\w+)"\} (\S+)$', page, re.MULTILINE)
    return {quota: float(count) for quota, count in found}


class Flood:
    """Recommends of the loud tenant, as many in a second as this machine manages, up to 250 times its quota.

    Few enough wait for their answer at once that gRPC itself, which has no quotas, refuses none.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.codes: Counter[str] = Counter()
        self.given: list[str] = []
        self.seconds = 0.0

    async def run(self, ended: asyncio.Event) -> None:
        begun = time.monotonic()
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub, calls = RecommenderServiceStub(channel), []
            room = asyncio.Semaphore(MOST_WAITING)
            while not ended.is_set() or len(calls) < FLOOD:
                await room.acquire()
                calls.append(asyncio.create_task(self._ask(stub)))
                calls[-1].add_done_callback(lambda _: room.release())
                await asyncio.sleep(1 / FLOOD)
            await asyncio.gather(*calls)
        self.seconds = time.monotonic() - begun

    async def _ask(self, stub: RecommenderServiceStub) -> None:
        request = pb.RecommendRequest(bandit=f"tenants/{LOUD}/bandits/home")
        try:
            answer = await stub.Recommend(
                request, timeout=PATIENCE, metadata=(("authorization", f"Bearer {key(LOUD)}"),)
            )
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            self.codes[refusal.reason or refusal.code] += 1
            assert refusal.violations == [(f"tenants/{LOUD}", refusal.message)]
        else:
            self.codes["OK"] += 1
            self.given.append(answer.recommendation_id)


async def shop(address: str, tenant: str) -> None:
    """Ask for slates and reward them; each call is sent once, and must be answered with what it asked for."""
    async with AsyncClient(address, tenant=tenant, key=key(tenant), timeout=PATIENCE, retry=ONCE) as mine:
        for _ in range(VISITS):
            slate = await mine.recommend("home")
            assert slate.source is Source.SERVICE
            await mine.reward("home", slate.id, 1.0)
            await asyncio.sleep(PAUSE)
        assert (await mine.stats("home")).recommendation_count == VISITS


def test_one_loud_tenant_holds_up_no_other(folder: Path, tmp_path: Path) -> None:
    keys, quotas = tmp_path / "keys.json", tmp_path / "quotas.toml"
    write_keys(keys, LOUD, *OTHERS, EVERY_TENANT)
    # Others send fewer calls in all than they may at once, so that none is refused however slow or fast this is.
    quotas.write_text(f"[{LOUD}]\ncalls_per_second = {QUOTA}\n")
    flags = (f"--keys-file={keys}", f"--quotas-file={quotas}", "--max-calls-in-flight-per-tenant=8")
    with serving(folder, *flags, f"--max-calls-per-second-per-tenant={VISITS + 10}") as service:
        for tenant in (LOUD, *OTHERS):
            with Client(service.address, tenant=tenant, key=key(EVERY_TENANT), timeout=PATIENCE) as operator:
                operator.create_bandit("home", slate_size=2, item_capacity=9)
                operator.upsert_items("home", ["tea", "coffee", "milk"])
        flood = Flood(service.address)

        async def together() -> None:
            ended = asyncio.Event()
            loud = asyncio.create_task(flood.run(ended))
            await asyncio.gather(*(shop(service.address, tenant) for tenant in OTHERS))
            ended.set()
            await loud

        asyncio.run(together())
        assert set(flood.codes) <= {"OK", "CALL_QUOTA", "IN_FLIGHT_QUOTA"}
        assert 0 < flood.codes["OK"] <= QUOTA * (flood.seconds + 1)
        assert all(flood.given)
        assert refusals(service) == {
            "calls_per_second": flood.codes["CALL_QUOTA"],
            "calls_in_flight": flood.codes["IN_FLIGHT_QUOTA"],
            **dict.fromkeys(("rewards_per_second", "bandits", "studies", "items", "open_slates", "log_bytes"), 0),
        }
        assert flood.codes["CALL_QUOTA"] > 0
        # What it was given can be rewarded all the same.
        with client(service, LOUD) as mine:
            batch = mine.rewards("home", dict.fromkeys(flood.given, 1.0))
            assert len(batch.receipts) == len(flood.given)


def test_without_quotas_a_loud_tenant_leaves_places_for_the_others(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    write_keys(keys, LOUD, *OTHERS)
    with serving(folder, f"--keys-file={keys}") as service:
        for tenant in (LOUD, *OTHERS):
            with client(service, tenant) as owner:
                owner.create_bandit("home", slate_size=2, item_capacity=9)
                owner.upsert_items("home", ["tea", "coffee", "milk"])

        async def together() -> Counter[str]:
            ended, seen, visits = asyncio.Event(), Counter[str](), len(OTHERS) * VISITS
            address = service.address
            async with AsyncClient(address, tenant=LOUD, key=key(LOUD), timeout=PATIENCE, retry=ONCE) as loud:

                async def flood() -> None:
                    while not ended.is_set() or seen["OK"] <= visits:  # nor is the loud one shut out
                        try:
                            await loud.recommend("home")
                            seen["OK"] += 1
                        except ResourceExhausted as error:
                            seen[error.reason] += 1
                            await asyncio.sleep(0.01)

                floods = [asyncio.create_task(flood()) for _ in range(MOST_WAITING)]
                await asyncio.gather(*(shop(address, tenant) for tenant in OTHERS))
                ended.set()
                await asyncio.gather(*floods)
            return seen

        assert set(asyncio.run(together())) == {"OK", "CALLS_IN_FLIGHT"}


def test_quotas_are_changed_while_it_serves(folder: Path, tmp_path: Path) -> None:
    keys, quotas = tmp_path / "keys.json", tmp_path / "quotas.toml"
    write_keys(keys, LOUD, EVERY_TENANT)
    quotas.write_text(f"[{LOUD}]\ncalls_per_second = 1\n")

    def until_logged(words: str) -> None:
        until(lambda: any(words in str(record.get("message")) for record in service.records), what=words)

    async def answers() -> list[object]:
        async with AsyncClient(service.address, tenant=LOUD, key=key(LOUD), timeout=PATIENCE, retry=ONCE) as mine:
            return await asyncio.gather(*(mine.recommend("home") for _ in range(30)), return_exceptions=True)

    def refused() -> ResourceExhausted:
        """Ask until a call is refused, which none is where the machine takes a second for each."""
        while True:
            for answer in asyncio.run(answers()):
                if isinstance(answer, ResourceExhausted):
                    return answer

    with serving(folder, f"--keys-file={keys}", f"--quotas-file={quotas}") as service:
        with Client(service.address, tenant=LOUD, key=key(EVERY_TENANT), timeout=PATIENCE) as operator:
            operator.create_bandit("home", slate_size=2, item_capacity=9)
            operator.upsert_items("home", ["tea", "coffee", "milk"])
            for _ in range(20):  # whose key is for every tenant
                operator.recommend("home")
        error = refused()
        assert (error.reason, error.quota, error.numbers) == ("CALL_QUOTA", "calls_per_second", {"limit": 1, "used": 1})
        assert error.retry_after is not None
        assert 0.0 < error.retry_after <= 1.0
        quotas.write_text("[loud")
        until_logged("is not TOML")
        assert refused().quota == "calls_per_second"
        quotas.write_text(f'[{LOUD}]\ncalls_per_second = "none"\n')
        until_logged("quotas_file was read again")
        with client(service, LOUD) as mine:
            for _ in range(50):
                assert mine.recommend("home").items
