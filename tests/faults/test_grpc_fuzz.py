"""Calls over gRPC that nobody should send, with and without credentials: documented codes, and a service as it was."""

from __future__ import annotations

import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_status import rpc_status
from tests.faults.service import serving
from tests.faults.test_http_fuzz import MIB, memory_of
from tests.long_forms import usual_or_long
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client
from topk_bandit.commands.cli import main
from topk_bandit.rpc.services import DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message
    from tests.faults.service import Service

METHODS = [(f"/{service.full_name}/{method.name}", method) for service in DESCRIPTORS for method in service.methods]
CALLS = usual_or_long(1_500, long=50_000)
CALLERS = 4
GROWS, ROOM = 0.10, 32 * MIB
"""By this a worker's memory may be larger afterwards; the room is for models of what was made meanwhile."""

UNKNOWN_CALLERS = ("", "none", "Bearer", "Bearer ", "Bearer x.y", "Basic eDp5", "Bearer " + "k" * 5000)
REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED}
"""The last one is that of calls of people with links, which this service does not serve."""
DOCUMENTED = REFUSED | {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
OF_PYTHON = re.compile(r"Traceback|\w(Error|Exception)\b|object at 0x|<class|NoneType|\.py\b")

TENANT = "shop"
WORDS = ("", "a", "b", "home", "é", "x" * 129, "a\nb", "\x00", "tenants/*", "..", '{"a":1}', "-1", "*", "a,b", "\u202e")
WHOLE = (0, 1, -1, 2, 3, 12, 13, 64, 1000, 1001, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
REAL = (0.0, 1.0, -1.0, 0.3, 1e-320, 1e308, float("nan"), float("inf"), 1e100, 1e6, -0.0)
KINDS = {"bandit": ["bandits"], "study": ["studies"], "prior_study": ["studies"], "name": ["bandits", "studies"]}
"""What fields name by tenant and kind."""


class Maker:
    """Makes messages of any type, of values that are likely to be near what is taken, and of some that are not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.known = ["a", "b", "home", "tea", "milk"]

    def make(self, described: Descriptor, depth: int = 0) -> Message:
        message = GetMessageClass(described)()
        for field in described.fields:
            if self.rng.random() < (0.7 if depth < 4 else 0.1):
                self._fill(message, field, depth)
        return message

    def _fill(self, message: Any, field: FieldDescriptor, depth: int) -> None:  # noqa: ANN401 - of any type
        try:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._fill_map(getattr(message, field.name), field.message_type.fields_by_name["value"], depth)
            elif field.is_repeated:
                values = [self._value(field, depth) for _ in range(self.rng.choice((0, 1, 1, 2, 3, 30)))]
                getattr(message, field.name).extend(values)
            elif field.message_type is not None:
                getattr(message, field.name).CopyFrom(self._value(field, depth))
            else:
                setattr(message, field.name, self._value(field, depth))
        except (ValueError, TypeError):
            pass  # it can't be sent at all

    def _fill_map(self, entries: Any, of_value: FieldDescriptor, depth: int) -> None:  # noqa: ANN401 - a map field
        for _ in range(self.rng.randrange(4)):
            key, value = self.rng.choice(WORDS), self._value(of_value, depth)
            if of_value.message_type is None:
                entries[key] = value
            else:
                entries[key].CopyFrom(value)

    def _value(self, field: FieldDescriptor, depth: int) -> Any:  # noqa: ANN401 - of the field's type
        if field.message_type is not None:
            return self.make(field.message_type, depth + 1)
        if field.type == FieldDescriptor.TYPE_STRING:
            return self._text(field.name)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.rng.randbytes(self.rng.randrange(40))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.rng.random() < 0.5
        if field.type in {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}:
            return self.rng.choice(REAL)
        if field.enum_type is not None:
            return self.rng.choice([*(value.number for value in field.enum_type.values), 99])
        return self.rng.choice(WHOLE if self.rng.random() < 0.3 else WHOLE[:5])

    def _text(self, name: str) -> str:
        if self.rng.random() < 0.2:
            return self.rng.choice(WORDS)
        if name in {"parent", "tenant"}:
            return f"tenants/{TENANT}"
        if name in KINDS:
            return f"tenants/{TENANT}/{self.rng.choice(KINDS[name])}/{self.rng.choice(self.known)}"
        return self.rng.choice(self.known)


class Outcome(NamedTuple):
    """What became of a call."""

    method: str
    code: grpc.StatusCode
    told: str
    is_known: bool


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A service with keys, and one of them that may do everything for the tenant."""
    folder = tmp_path_factory.mktemp("fuzz")
    keys, scopes = folder / "keys.json", [f"--scope={one}" for one in ("recommend", "reward", "manage", "operate")]
    with redirect_stdout(StringIO()) as printed:
        assert main(["keys", "create", f"--keys-file={keys}", f"--tenant={TENANT}", *scopes]) == 0
    with serving(folder / "data", f"--keys-file={keys}") as service:
        key = printed.getvalue().strip()
        with Client(service.address, tenant=TENANT, key=key, timeout=PATIENCE) as client:
            client.create_bandit("home", slate_size=2, item_capacity=9, context_dimension=2)
            client.upsert_items("home", ["tea", "milk", "a", "b"])
        yield service, key


def fuzz(address: str, key: str, *, calls: int, seed: int) -> list[Outcome]:
    """Send calls, a third of them by callers who are unknown, a tenth of bytes that are no message; return outcomes."""

    def some(place: int) -> list[Outcome]:
        maker = Maker(seed * CALLERS + place)
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            return [one(channel, maker) for _ in range(calls // CALLERS)]

    def one(channel: grpc.Channel, maker: Maker) -> Outcome:
        path, method = maker.rng.choice(METHODS)
        known = maker.rng.random() < 0.67
        authorization = f"Bearer {key}" if known else maker.rng.choice(UNKNOWN_CALLERS)
        sent = maker.make(method.input_type).SerializeToString()
        if maker.rng.random() < 0.1:
            sent = maker.rng.choice((sent[: len(sent) // 2], maker.rng.randbytes(50), sent[::-1]))
        metadata = (("authorization", authorization),) if authorization else None
        try:
            answer = channel.unary_unary(path, None, None)(sent, timeout=PATIENCE, metadata=metadata)
            GetMessageClass(method.output_type).FromString(answer)
        except grpc.RpcError as error:
            failed: Any = error  # which has what a call has
            told = rpc_status.from_call(failed)
            return Outcome(path, failed.code(), f"{failed.details()} {told}", is_known=known)
        return Outcome(path, grpc.StatusCode.OK, "", is_known=known)

    with ThreadPoolExecutor(CALLERS) as pool:
        return [outcome for outcomes in pool.map(some, range(CALLERS)) for outcome in outcomes]


@pytest.mark.long_form
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_calls_that_nobody_should_send(locked: tuple[Service, str]) -> None:
    service, key = locked
    (worker,) = service.worker_pids
    outcomes = fuzz(service.address, key, calls=CALLS // 2, seed=1)
    memory = memory_of(worker)
    outcomes += fuzz(service.address, key, calls=CALLS // 2, seed=2)
    until(
        lambda: memory_of(worker) <= memory * (1.0 + GROWS) + ROOM,
        what=f"its memory is back from {memory / MIB:.0f} MiB",
    )
    assert service.worker_pids == [worker]
    for outcome in outcomes:
        assert outcome.code in (DOCUMENTED if outcome.is_known else REFUSED), outcome
        assert not OF_PYTHON.search(outcome.told), outcome
        assert outcome.code is not grpc.StatusCode.INVALID_ARGUMENT or "BadRequest" in outcome.told, outcome
    # Far from all are refused for their form: a hundredth of all does something, and a hundredth finds nothing.
    counts = Counter(outcome.code for outcome in outcomes if outcome.is_known)
    assert min(counts[code] for code in (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND)) > len(outcomes) / 100, counts
    assert [record for record in service.records if record["level"] == "ERROR"] == []
