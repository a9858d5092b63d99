"""The workers of one service among themselves: whose a bandit is, and how the others ask its owner.

A bandit's owner is the worker with the highest score of a rendezvous hash, of those that answer. The others pass calls
about the bandit on to it, one hop over a socket in the service's private folder, so that one worker follows its log and
not all of them. Nothing rests on it but time: each worker can answer every call, and does if the owner is away, has no
place, or is asked for one bandit more often than it answers. So a call may be begun twice, and only methods whose calls
may be repeated are passed on.

Each answer names the worker that gave it, so that callers with connections to several can call the owner themselves:
``2/4;service=3f9a1c22;owner=1`` is the second of four, about a bandit that the first one owns, and ``owner=any`` stands
for one of which more is asked than its owner answers. The service is known by a hash that is another one after each
start, since workers of different services have the same numbers.

Source: Thaler and Ravishankar, *Using Name-Based Mappings to Increase Hit Rates*, IEEE/ACM Transactions on Networking
6(1), 1998 (highest random weight).
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self

import grpc
from google.protobuf import message_factory
from google.rpc.status_pb2 import Status

from topk_bandit.domain.calls import CURRENT_CALL
from topk_bandit.rpc.access import LONGEST_NAME
from topk_bandit.rpc.call_ids import ids_of
from topk_bandit.rpc.failures import Failure, failure_of
from topk_bandit.rpc.peer_frames import Answer, Asked, read_frame, write_frame
from topk_bandit.v1 import bandit_service_pb2, operator_service_pb2, recommender_service_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from google.protobuf.descriptor import ServiceDescriptor
    from google.protobuf.message import Message

__all__ = [
    "ALONE",
    "ASKED_OF_ALL",
    "GIVEN_UP",
    "METHODS",
    "PASSED_ON",
    "PeerHooks",
    "PeerRefusedError",
    "Peers",
    "rank_workers",
]

LOOK_SECONDS = 0.25
"""How often a peer that is away is looked for, and one that said nothing for so long is asked for a sign of life."""

SILENT_SECONDS = 1.0
"""A peer that gives no sign of life in this time is away."""

MOST_AT_ONCE = 4
"""So many calls about one bandit wait for its owner; further ones are answered by the worker that has them."""

_METHODS = {
    # Neither AmendReward nor UpsertItems: an owner that hung, and was given up, would undo later ones when it goes on.
    recommender_service_pb2: ("Recommend", "BatchRecommend", "Activate", "Reward", "BatchReward", "VoidReward"),
    bandit_service_pb2: ("RetireItems", "GetBanditStats"),
    operator_service_pb2: ("ExplainRecommendation", "ListTopSlates", "GetBanditHistory", "VerifyBandit"),
}
_TAKEN = "CALLS_IN_FLIGHT"


def _answers_of(service: ServiceDescriptor, names: Sequence[str]) -> dict[str, type[Message]]:
    methods = (service.methods_by_name[name] for name in names)
    return {
        f"/{service.full_name}/{method.name}": message_factory.GetMessageClass(method.output_type) for method in methods
    }


def _service_of(module: Any) -> ServiceDescriptor:  # noqa: ANN401 - a generated module
    (service,) = module.DESCRIPTOR.services_by_name.values()
    described: ServiceDescriptor = service
    return described


PASSED_ON: Mapping[str, type[Message]] = {
    method: answer
    for module, names in _METHODS.items()
    for method, answer in _answers_of(_service_of(module), names).items()
}
"""The methods about one bandit that its owner is asked, and what each answers; a call that is sent twice is as one."""

ASKED_OF_ALL = _answers_of(_service_of(operator_service_pb2), ("ListBanditOverviews", "GetTenantStats"))
"""The methods about what is in the memory of workers, and what each answers."""

_ANSWERS = {**PASSED_ON, **ASKED_OF_ALL}
METHODS = tuple(_ANSWERS)
"""All that a peer is asked, in the order of their places in frames."""

_PLACES = {method: place for place, method in enumerate(METHODS)}
_SIGN_OF_LIFE = len(METHODS)
GIVEN_UP = _SIGN_OF_LIFE + 1
"""In a method's place: nobody waits any more for the call of that number."""


class PeerHooks(Protocol):
    """Where telemetry attaches."""

    def passed_on(self, outcome: str) -> None:
        """Note that a call's owner was another worker: "answered" by it, or here since it was "away" or "busy"."""


class PeerRefusedError(Exception):
    """The owner refused a call; its caller gets the same refusal."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@lru_cache(maxsize=1 << 16)
def rank_workers(bandit: str, n_workers: int) -> tuple[int, ...]:
    """Return the workers 1 to `n_workers` in the order in which they own a bandit: the first that answers does."""

    def score(worker: int) -> bytes:
        return blake2b(f"{worker} {bandit}".encode(), digest_size=8).digest()

    return tuple(sorted(range(1, n_workers + 1), key=score, reverse=True))


class Peers:
    """A worker's view of the others of its service.

    Parameters
    ----------
    own
        This worker's number, from 1.
    paths
        The sockets of all workers, in the order of their numbers; one or none for a worker that has no peers.
    clock
        Seconds, monotonic.
    """

    def __init__(
        self, own: int, paths: Sequence[str], *, hooks: PeerHooks, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = own
        self._n_workers = len(paths)
        self._hooks = hooks
        self._others = {
            number: _Peer(number, path, clock=clock) for number, path in enumerate(paths, start=1) if number != own
        }
        self._looking: list[asyncio.Task[None]] = []
        self._answered_here: Counter[str] = Counter()
        # The folder of the sockets has a name of its own at each start.
        service = blake2b("".join(paths).encode(), digest_size=4).hexdigest()
        self._header = f"{own}/{len(paths)};service={service}" if self._others else ""
        self._headers_of_owners = {number: f"{self._header};owner={number}" for number in (own, *self._others)}
        self._header_of_shared = f"{self._header};owner=any"

    async def __aenter__(self) -> Self:
        """Begin to look which of them are there; until one says so it is away."""
        self._looking.extend(asyncio.create_task(peer.look()) for peer in self._others.values())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)

    @property
    def has_others(self) -> bool:
        """Whether the service has other workers."""
        return bool(self._others)

    def owns(self, bandit: str) -> bool:
        """Return whether this worker is the owner of a bandit, by its full name, as far as it knows who is there."""
        return not self._others or self._owner(bandit) is None

    def ranks_first(self, bandit: str) -> bool:
        """Return whether this worker is the owner of a bandit while all workers are there."""
        return not self._others or next(iter(rank_workers(bandit, self._n_workers))) == self._own

    def worker_header(self, bandit: str = "") -> str:
        """Return the header that names the answering worker and, for a call about a bandit, the bandit's owner.

        It is empty for a service of one worker. A bandit is anybody's while so many other calls about it are under way
        that a further one would not be passed on, or not have been.
        """
        if not self._others or not bandit:
            return self._header
        owner = self._owner(bandit)
        under_way = self._answered_here if owner is None else owner.under_way
        if under_way[bandit] >= MOST_AT_ONCE:
            return self._header_of_shared
        return self._headers_of_owners[self._own if owner is None else owner.number]

    async def answer(self, method: str, bandit: str, request: Any, here: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - messages
        """Return the owner's answer, or that of this worker, `here`, if no other is asked; the errors of `ask`."""
        if not self.owns(bandit):
            answer = await self.ask(method, bandit, request)
            if answer is not None:
                return answer
        return await self.answer_here(bandit, here())

    async def answer_here(self, bandit: str, answering: Awaitable[Any]) -> Any:  # noqa: ANN401 - messages
        """Return what this worker answers itself, and count the call while it does."""
        self._answered_here[bandit] += 1
        try:
            return await answering
        finally:
            self._answered_here[bandit] -= 1
            if not self._answered_here[bandit]:
                del self._answered_here[bandit]

    async def ask(self, method: str, bandit: str, request: Any) -> Any:  # noqa: ANN401 - messages
        """Return the owner's answer, a message; None if this worker is to answer.

        Parameters
        ----------
        method
            One of `PASSED_ON`.
        request
            Its message. What asks for a slate without a request id gets one, since it may be begun twice.

        Raises
        ------
        PeerRefusedError
            The owner refused the call, with a reason that holds here too.
        """
        owner = self._owner(bandit)
        if owner is None:
            return None
        if not owner.has_place(bandit):
            self._note("busy")
            return None
        for one in (request, *getattr(request, "requests", ())):
            if not getattr(one, "request_id", "-"):
                one.request_id = uuid.uuid4().hex
        try:
            answer = await owner.ask(method, bandit, request)
        except _NotAnsweredError as error:
            self._note(error.outcome)
            return None
        except PeerRefusedError:
            self._note("answered")
            raise
        self._note("answered")
        if (call := CURRENT_CALL.get()) is not None:
            call.recommendation_id = getattr(answer, "recommendation_id", "")
        return answer

    async def ask_all(self, method: str, request: Message) -> Sequence[Any]:
        """Return the answers of all other workers that are there; those that don't answer are left out.

        Parameters
        ----------
        method
            One of `ASKED_OF_ALL`.
        """

        async def ask(one: _Peer) -> Message:
            async with asyncio.timeout(SILENT_SECONDS):
                return await one.ask(method, "", request)

        there = (one for one in self._others.values() if one.is_there)
        answers = await asyncio.gather(*map(ask, there), return_exceptions=True)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    def _note(self, outcome: str) -> None:
        self._hooks.passed_on(outcome)

    def _owner(self, bandit: str) -> _Peer | None:
        if len(bandit) > LONGEST_NAME:  # there is none with such a name, and what is ranked is kept
            return None
        for number in rank_workers(bandit, self._n_workers):
            if number == self._own:
                return None
            if self._others[number].is_there:
                return self._others[number]
        return None


class _Unheard:
    """Hooks that do nothing."""

    def passed_on(self, outcome: str) -> None:
        """Leave it."""


ALONE = Peers(1, (), hooks=_Unheard())
"""What a worker without peers uses, and so does the server for peers."""


class _NotAnsweredError(Exception):
    """The peer is "away", or too "busy"."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class _Peer:
    """Another worker, and the connection to it.

    Parameters
    ----------
    path
        The path of its socket.
    clock
        Seconds, by which it is silent.

    Attributes
    ----------
    number
        Its own, from 1.
    under_way
        How many calls about each bandit it was asked and has not answered.
    is_there
        Whether there is a connection on which it answers.
    """

    def __init__(self, number: int, path: str, *, clock: Callable[[], float]) -> None:
        self.number = number
        self._path = path
        self._clock = clock
        self._heard_at = -math.inf
        self._numbers = count()
        self.under_way: Counter[str] = Counter()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._signed = asyncio.Event()
        self.is_there = False

    async def look(self) -> None:
        """Connect whenever there is no connection, and end one on which nothing is answered any more."""
        try:
            while True:
                if self._writer is None:
                    await self._connect()
                elif self._clock() - self._heard_at > LOOK_SECONDS:
                    await self._examine(self._writer)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._leave()

    async def _connect(self) -> None:
        """Connect to it if it listens; it is there once it says something, which one that hangs does not."""
        with suppress(OSError):
            reader, self._writer = await asyncio.open_unix_connection(self._path)
            self._reading = asyncio.create_task(self._read(reader))
            await self._examine(self._writer)

    async def _examine(self, writer: asyncio.StreamWriter) -> None:
        """Ask for a sign of life; one that hangs is left, and what it was asked is answered elsewhere."""
        began, self._signed = self._clock(), asyncio.Event()
        write_frame(writer, Asked(next(self._numbers), _SIGN_OF_LIFE, "", "", b"").pack())
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENT_SECONDS):
                await self._signed.wait()
        if self._heard_at < began:
            self._leave()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Hand out answers until the connection ends."""
        try:
            while True:
                answer = Answer.unpack(await read_frame(reader))
                self._heard_at, self.is_there = self._clock(), True
                self._signed.set()
                waiting = self._waiting.pop(answer.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except (asyncio.IncompleteReadError, OSError):
            self._leave()

    def _leave(self) -> None:
        """End the connection; whoever waits for an answer gets an error."""
        self.is_there = False
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.transport.abort()
        reading, self._reading = self._reading, None
        if reading is not None and reading is not asyncio.current_task():
            reading.cancel()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(_NotAnsweredError("away"))

    def has_place(self, bandit: str) -> bool:
        """Return whether another call about a bandit may be sent."""
        return self.under_way[bandit] < MOST_AT_ONCE

    async def ask(self, method: str, bandit: str, request: Message) -> Message:
        """Return its answer, however long that takes while it is there; who waits no longer cancels this.

        Raises
        ------
        PeerRefusedError, _NotAnsweredError
            It refused the call; or it is not there, or has no place for it.
        """
        self.under_way[bandit] += 1
        number = next(self._numbers)
        try:
            answer = await self._send(number, method, request)
        except asyncio.CancelledError:
            self._give_up(number)
            raise
        finally:
            self.under_way[bandit] -= 1
            if not self.under_way[bandit]:
                del self.under_way[bandit]
        if not answer.is_message and not answer.payload:
            raise _NotAnsweredError("away")
        if not answer.is_message:
            raise _explain(failure_of(Status.FromString(answer.payload)))
        return _ANSWERS[method].FromString(answer.payload)

    def _send(self, number: int, method: str, request: Message) -> asyncio.Future[Answer]:
        """Send a call, and return what its answer will be in."""
        if self._writer is None:
            raise _NotAnsweredError("away")
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        call = CURRENT_CALL.get()
        request_id, traceparent = ("", "") if call is None else ids_of(call)
        asked = Asked(number, _PLACES[method], request_id, traceparent, request.SerializeToString())
        write_frame(self._writer, asked.pack())
        return answered

    def _give_up(self, number: int) -> None:
        """Report that nobody waits for a call's answer. The peer still owes one: else it could hang unnoticed."""
        if self._writer is not None and number in self._waiting:
            write_frame(self._writer, Asked(number, GIVEN_UP, "", "", b"").pack())


def _explain(failure: Failure) -> Exception:
    """Return what a refusal means to who asked."""
    if failure.reason == _TAKEN:
        return _NotAnsweredError("busy")
    if failure.code is grpc.StatusCode.UNAVAILABLE and not failure.reason:
        return _NotAnsweredError("away")  # it drains; or the store is away, which this worker reports itself
    return PeerRefusedError(failure)
