"""Send calls to a deployment so that each ends in bounded time, and translate the client library's errors.

`translate` is the only table from those errors to `topk_bandit.domain.errors`. A server that could not be reached is
not asked again for a moment, and the log says when that begins and ends. A call that may have been carried out is
never repeated here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redis import exceptions as raised

from topk_bandit.domain.durability import IN_MEMORY
from topk_bandit.domain.errors import (
    ConfigurationError,
    CorruptDataError,
    ExhaustedError,
    NotDurableError,
    NotPermittedError,
    UnavailableError,
)
from topk_bandit.store.data_versions import OLDEST
from topk_bandit.store.redis.breaker import Breaker
from topk_bandit.store.redis.classes import Classes
from topk_bandit.store.redis.deployment import MAX_CONNECTIONS, open_deployment
from topk_bandit.store.redis.outage import Outage
from topk_bandit.store.redis.waits import check_achieved, waits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from redis.asyncio import Redis

    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.redis.deployment import Deployment
    from topk_bandit.store.redis.held_connections import Command
    from topk_bandit.store.redis.scripts import Script, SentScript

__all__ = ["Link", "translate"]

_Arguments: TypeAlias = "Sequence[bytes | str | int]"

_COOLDOWN = 0.25
_REFUSED_SECONDS = 5.0

_UNREACHED = (
    TimeoutError,
    OSError,
    raised.ConnectionError,
    raised.TimeoutError,
    raised.RedisClusterException,
)
_ANSWERED = (raised.BusyLoadingError, raised.AuthenticationError)
_AWAY = (
    *_UNREACHED,
    raised.ClusterError,
    raised.ReadOnlyError,
    raised.TryAgainError,
    raised.InvalidResponse,
)
_REFUSED_IN_SCRIPTS = ("ACL failure in script: ", "The user executing the script can't ")
"""How the answer begins where a script meets what its user may not do; Redis 7.0 has the second."""
_GARBLED = "Protocol error"
"""How a server answers what it can't take apart, before it ends the connection."""
_AWAY_CODES = ("LOADING", "READONLY", "MISCONF", "NOREPLICAS", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED")


def translate(error: Exception) -> Exception:
    """Return the error of `topk_bandit.domain.errors` that stands for one of the client library; others as they are."""
    code = str(error).partition(" ")[0]
    if isinstance(error, raised.OutOfMemoryError) or code == "OOM":
        return ExhaustedError("STORE_FULL", "the store's memory is used up")
    if isinstance(error, raised.NoPermissionError) or str(error).startswith(_REFUSED_IN_SCRIPTS):
        permission = str(error).removeprefix(_REFUSED_IN_SCRIPTS[0]).partition(" script: ")[0]
        return NotPermittedError(f"the store's user lacks a permission: {permission}")
    if isinstance(error, _AWAY) or code in _AWAY_CODES or str(error).startswith(_GARBLED):
        return UnavailableError(f"the store is away: {error}" if str(error) else "the store is away")
    if code == "WRONGTYPE":
        return CorruptDataError("a key of the store holds something that was not written by this service")
    return error


def _translate_reply(reply: Any) -> Any:  # noqa: ANN401 - replies have no narrower type
    if not isinstance(reply, Exception):
        return reply
    error = translate(reply)
    error.__cause__ = None if error is reply else reply
    return error


def _name_store(node: str) -> str:
    return f"the store {node}" if node else "the store"


class Link:
    """A deployment, with a bound on each call.

    Parameters
    ----------
    deployment
        Where to send calls.
    timeout
        Seconds that a call may take, waiting for a free connection and one repetition included.
    monotonic
        A clock that never goes back, in seconds.
    durability
        What `run_durably` waits for where a bandit has no class of its own.

    Attributes
    ----------
    durability
        As above.
    data_version
        What scripts, and all that are sent values to them, write.
    """

    def __init__(
        self, deployment: Deployment, *, timeout: float, monotonic: Callable[[], float], durability: Durability
    ) -> None:
        self._deployment = deployment
        self._timeout = timeout
        self.durability = durability
        self.data_version = OLDEST
        self._classes = Classes(durability)
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._breakers: defaultdict[str, Breaker] = defaultdict(
            lambda: Breaker(cooldown=_COOLDOWN, monotonic=monotonic)
        )
        self._outages: dict[str, Outage] = {}
        self._lacks: dict[str, Outage] = {}
        self._monotonic = monotonic
        self._refused, self._always = "", ""

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        timeout: float,  # noqa: ASYNC109 - it bounds each later call too
        monotonic: Callable[[], float],
        durability: Durability = IN_MEMORY,
    ) -> Link:
        """Connect; see `open_deployment` for `url`.

        Raises
        ------
        ConfigurationError
            The URL can't be used, or its user and password are refused.
        NotPermittedError
            Its user may not ask what it is.
        UnavailableError
            Nothing answers in time.
        """
        try:
            async with asyncio.timeout(timeout):
                deployment = await open_deployment(url, timeout=timeout)
        except raised.AuthenticationError as error:
            raise ConfigurationError(f"the store refuses the user and password of its URL: {error}") from error
        except (raised.RedisError, raised.RedisClusterException, OSError) as error:
            raise translate(error) from error
        return cls(deployment, timeout=timeout, monotonic=monotonic, durability=durability)

    @property
    def mode(self) -> str:
        """One of standalone, sentinel and cluster."""
        return self._deployment.mode

    def refuse(self, problem: str, *, but: str) -> None:
        """Refuse all calls but those of one key, for a problem; "" for none any more."""
        self._refused, self._always = problem, but

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[bytes | str | int] = ()) -> Any:  # noqa: ANN401
        """Run a script; all of `keys` share a slot."""
        operands, sent = (len(keys), *keys, *arguments), script.at(self.data_version)
        async with self._guard(keys[0]):
            try:
                return await self._deployment.execute("EVALSHA", sent.digest, *operands)
            except raised.NoScriptError:
                return await self._deployment.execute("EVAL", sent.source, *operands)

    async def run_durably(
        self, script: Script, keys: Sequence[str], arguments: Sequence[bytes | str | int] = (), *, meta: str
    ) -> tuple[Any, Durability]:
        """Run a script, and wait until what it wrote is as durable as is asked for; return what was achieved too.

        Parameters
        ----------
        meta
            The hash whose field "durability" may ask for another class than the service's, as it is after the script.

        Raises
        ------
        NotDurableError
            It was not in time; the script has run.
        """
        replies, durability = await self.run_all_durably(script, keys, (arguments,), meta=meta)
        for outcome in (*replies, durability):
            if isinstance(outcome, Exception):
                raise outcome
        return replies[0], cast("Durability", durability)

    async def run_all_durably(
        self, script: Script, keys: Sequence[str], arguments: Sequence[_Arguments], *, meta: str
    ) -> tuple[list[Any], Durability | NotDurableError]:
        """Run a script once for each of `arguments`, in order; see `run_durably`.

        Returns what each is answered with, an error in its place, and what was achieved of all that is written.
        """
        awaited = self._classes.expect(meta)
        replies, wait_replies = await self._run_and_wait(script, keys, arguments, awaited, meta)
        if all(isinstance(reply, Exception) for reply in replies):
            return replies, awaited  # nothing is written
        required = self._classes.note(meta, wait_replies[0])
        if required > awaited:
            # Nobody has waited for these writes as they need: the script, which finds its effect there, waits again.
            awaited = required
            _, wait_replies = await self._run_and_wait(script, keys, arguments, awaited, meta)
            required = self._classes.note(meta, wait_replies[0])
        try:
            return replies, check_achieved(awaited, wait_replies[1:], required=required)
        except NotDurableError as error:
            return replies, error

    async def run_all(self, script: Script, keys: Sequence[str], arguments: Sequence[_Arguments]) -> list[Any]:
        """Run a script once for each of `arguments`, in order; return each one's answer, an error in its place."""
        operands = [(len(keys), *keys, *one) for one in arguments]
        return await self._run_together(script.at(self.data_version), operands, keys[0], behind=())

    async def _run_and_wait(
        self, script: Script, keys: Sequence[str], arguments: Sequence[_Arguments], awaited: Durability, meta: str
    ) -> tuple[list[Any], list[Any]]:
        """Return the answers of a script, and behind those of the class that its writes need, the waits for a class."""
        operands = [(len(keys), *keys, *one) for one in arguments]
        behind = (("HGET", meta, "durability"), *waits(awaited, timeout=self._timeout))
        replies = await self._run_together(script.at(self.data_version), operands, meta, behind=behind)
        needed, *waited = replies[len(arguments) :]
        return replies[: len(arguments)], [_translate_reply(needed), *waited]

    async def _run_together(
        self, script: SentScript, operands: Sequence[_Arguments], key: str, *, behind: Sequence[Command]
    ) -> list[Any]:
        """Return the answers of a script, and of the commands behind it, all sent over one connection."""
        known = [("EVALSHA", script.digest, *one) for one in operands]
        async with self._guard(key):
            replies = await self._deployment.execute_together(key, (*known, *behind))
            forgotten = [place for place in range(len(known)) if isinstance(replies[place], raised.NoScriptError)]
            if forgotten:  # the first of them brings the script back for the others
                anew = ("EVAL", script.source, *operands[forgotten[0]])
                others = (known[place] for place in forgotten[1:])
                again = await self._deployment.execute_together(key, (anew, *others, *behind))
                replies[len(known) :] = again[len(forgotten) :]
                for place, reply in zip(forgotten, again, strict=False):
                    replies[place] = reply
            if isinstance(replies[0], Exception) and isinstance(translate(replies[0]), UnavailableError):
                raise replies[0]
        return [*map(_translate_reply, replies[: len(known)]), *replies[len(known) :]]

    async def call(self, command: str, key: str, *arguments: bytes | str | int) -> Any:  # noqa: ANN401
        """Send one command about one key."""
        async with self._guard(key):
            return await self._deployment.execute(command, key, *arguments)

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands about one key each, those of a server together; return the replies.

        `CorruptDataError` stands in place of the reply of one whose key is of another kind.
        """
        servers: dict[str, list[Command]] = {}
        for command in commands:
            servers.setdefault(self._deployment.node_of(str(command[1])), []).append(command)
        answered: dict[Command, Any] = {}
        for together in servers.values():
            key = str(together[0][1])
            async with self._guard(key):
                replies = await self._deployment.execute_together(key, together)
            answered |= dict(zip(together, replies, strict=True))
        for command in commands:
            if isinstance(answered[command], Exception):
                answered[command] = await self._call_alone(command)
        return [answered[command] for command in commands]

    async def _call_alone(self, command: Command) -> Any:  # noqa: ANN401 - as above
        """Return the reply of a command whose key may have moved to another server of a cluster."""
        name, key, *arguments = command
        try:
            return await self.call(str(name), str(key), *arguments)
        except CorruptDataError as error:
            return error

    async def clock_ms(self) -> int:
        """Return the time by the servers that take writes; the latest, if theirs differ."""
        times = await self.ask_primaries("TIME")
        return max(int(seconds) * 1000 + int(microseconds) // 1000 for seconds, microseconds in times.values())

    async def ask_permissions(self, question: Sequence[str]) -> Mapping[str, Any]:
        """Return what each server that takes writes answers; nothing where one is too old to understand it."""
        async with self._guard(""):
            try:
                return await self._deployment.ask_primaries(*question)
            except raised.ResponseError as error:
                if translate(error) is not error:
                    raise
                return {}

    async def ask_primaries(self, command: str) -> Mapping[str, Any]:
        """Send a command without keys to each server that takes writes; return the replies by server."""
        async with self._guard(""):
            return await self._deployment.ask_primaries(command)

    async def scan(self, pattern: str, *, at_once: int) -> AsyncIterator[Sequence[bytes]]:
        """Yield the keys that match a pattern, some of them twice, in parts: what is found among `at_once` keys."""
        async with self._guard(""):
            servers = await self._deployment.primaries()
        for server in servers:
            cursor = -1
            while cursor:
                asked = ("SCAN", max(cursor, 0), "MATCH", pattern, "COUNT", at_once)
                async with self._guard(""):
                    cursor, found = await self._deployment.ask(server, *asked)
                yield found

    async def read_settings(self, *names: str) -> Mapping[str, Mapping[str, str]]:
        """Return settings of each server that takes writes, by server; nothing where we may not read them."""
        async with self._guard(""):
            try:
                return await self._deployment.ask_primaries("CONFIG GET", *names)
            except raised.ResponseError:
                return {}

    def subscriber(self) -> Redis:
        """Return a client of its own for listening to a channel; the caller closes it."""
        return self._deployment.subscriber()

    def silence_of(self, channel: str) -> Outage:
        """Return what logs that a channel can't be listened to, though the store is there."""
        begins, ends = f"can't listen to {channel}, so that changes are noticed late", f"listening to {channel} again"
        return Outage(begins, ends=ends, monotonic=self._monotonic, within=self._outage(""))

    async def close(self) -> None:
        """Close all connections."""
        await self._deployment.close()

    @asynccontextmanager
    async def _guard(self, key: str) -> AsyncIterator[None]:
        """Bound what happens inside, fail fast if need be, and raise only our own errors for what we know."""
        if self._refused and key != self._always:
            raise UnavailableError(self._refused, retry_after=_REFUSED_SECONDS, nothing_sent=True)
        node = self._deployment.node_of(key) if key else ""
        breaker, outage, lack = self._breakers[node], self._outage(node), self._lack(node)
        breaker.admit()
        try:
            async with asyncio.timeout(self._timeout), self._slots:
                yield
        except Exception as error:
            await self._note(error, breaker)
            translated = translate(error)
            if isinstance(translated, NotPermittedError):
                lack.note_failure(translated)
            elif isinstance(translated, UnavailableError):
                outage.note_failure(error)
            raise translated from error
        except BaseException:
            breaker.note_abandoned()
            raise
        breaker.note_answer()
        outage.note_success()
        lack.note_success()

    def _outage(self, node: str) -> Outage:
        if node not in self._outages:
            named = _name_store(node)
            begins = f"{named} is away; slates are not recorded, and rewards refused"
            self._outages[node] = Outage(begins, ends=f"{named} is back", monotonic=self._monotonic)
        return self._outages[node]

    def _lack(self, node: str) -> Outage:
        """Return what logs that a server is there, and refuses what our user may not do."""
        if node not in self._lacks:
            named = _name_store(node)
            begins, ends = f"{named} refuses calls", f"{named} refuses calls no more"
            self._lacks[node] = Outage(begins, ends=ends, monotonic=self._monotonic)
        return self._lacks[node]

    async def _note(self, error: Exception, breaker: Breaker) -> None:
        if isinstance(error, raised.MaxConnectionsError):
            breaker.note_abandoned()  # nothing was sent, which says nothing of the server
        elif isinstance(error, _UNREACHED) and not isinstance(error, _ANSWERED):
            breaker.note_failure()
        else:
            breaker.note_answer()
        if isinstance(error, raised.ReadOnlyError):
            await self._deployment.drop_idle_connections()
