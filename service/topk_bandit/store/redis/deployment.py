"""Clients of one server, of Sentinel and of Redis Cluster behind one protocol; no other module distinguishes them.

All options of the client library that bound a call's time and repetitions are set here. A call is sent once more when
its connection breaks, because every script may be sent twice, and never when its reply does not come in time.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import PipelineCommand, RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterError,
    MovedError,
    NoPermissionError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.store.redis.held_connections import HeldConnections
from topk_bandit.store.redis.primaries import PrimaryConnection, PrimaryConnections, PrimaryWatch, Sentinels
from topk_bandit.store.redis.url import StoreUrl

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence

    from redis.asyncio.cluster import ClusterNode

    from topk_bandit.store.redis.held_connections import Command
    from topk_bandit.store.redis.url import SentinelUrl

__all__ = ["Deployment", "connection_name", "open_deployment"]

MAX_CONNECTIONS = 64
"""Connections to one server, besides one for each subscription."""

REDIRECTIONS = 8
"""How often a call follows a key that is being moved to another server of a cluster."""

MOVING_SECONDS = 0.05

_Reply = TypeVar("_Reply")


class Deployment(Protocol):
    """Where the keys are."""

    @property
    def mode(self) -> str:
        """One of standalone, sentinel and cluster."""
        ...

    def node_of(self, key: str) -> str:
        """Return which server holds a key, as far as known: two keys of one server have the same answer."""
        ...

    async def execute(self, *command: bytes | str | int) -> Any:  # noqa: ANN401 - replies have no narrower type
        """Send a command that names its keys to the server that holds them."""
        ...

    async def execute_together(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Send commands over one connection to the server that holds a key; an error of one is its reply."""
        ...

    async def ask_primaries(self, *command: str) -> Mapping[str, Any]:
        """Send a command without keys to each server that takes writes; return the replies by server."""
        ...

    async def primaries(self) -> Sequence[str]:
        """Return the servers that take writes."""
        ...

    async def ask(self, server: str, *command: bytes | str | int) -> Any:  # noqa: ANN401 - as above
        """Send a command without keys to one of the `primaries`."""
        ...

    async def drop_idle_connections(self) -> None:
        """Close the connections not in use, so that the next calls find out anew who takes writes."""
        ...

    def subscriber(self) -> Redis:
        """Return a client of its own for listening to a channel; the caller closes it."""
        ...

    async def close(self) -> None:
        """Close all connections, those of subscribers left out."""
        ...


async def open_deployment(url: str, *, timeout: float) -> Deployment:  # noqa: ASYNC109 - it bounds each reply
    """Connect to what `url` names, and find out whether it is a cluster.

    Parameters
    ----------
    url
        As `topk_bandit.store.redis.url` has it.
    timeout
        Seconds for connecting, and for each reply.

    Raises
    ------
    ConfigurationError
        The URL can't be used.
    redis.exceptions.RedisError
        Nothing answers, or not as a server does.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        "protocol": 2,
    }
    sentinel = _parse_url(url).sentinel
    one = _Standalone(url, options) if sentinel is None else _Sentinel(sentinel, options)
    try:
        about = await one.client.info("cluster")
        options |= await _name_connections(one.client)
    except ResponseError as error:
        await one.close()
        if "DB index" in str(error) or "SELECT" in str(error):
            raise ConfigurationError(f"the store has no database of that number: {error}") from None
        raise
    except BaseException:
        await one.close()
        raise
    if isinstance(one, _Sentinel):
        one.start()
        return one
    if not about.get("cluster_enabled"):
        return one
    await one.close()
    return await _Cluster.open(url, options)


async def _name_connections(client: Redis) -> Mapping[str, str]:
    """Name a client's connections, where its user may; return the option that names others, too."""
    name = {"client_name": connection_name()}
    try:
        await client.client_setname(name["client_name"])
    except NoPermissionError:
        return {}
    client.connection_pool.connection_kwargs |= name
    return name


def connection_name() -> str:
    """Return the name by which the store's CLIENT LIST has this process's connections."""
    host = re.sub(r"[^!-~]", "-", platform.node())
    return f"topk-bandit/{host}/{os.getpid()}"


def _parse_url(url: str) -> StoreUrl:
    try:
        return StoreUrl.parse(url)
    except ValueError as error:
        raise ConfigurationError(f"the store's URL {error}") from None


class _OneClient:
    """A deployment that one client, with one pool of connections, is enough for."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self._connections = HeldConnections(client)

    def node_of(self, key: str) -> str:  # noqa: ARG002 - there is one server
        return ""

    async def execute(self, *command: bytes | str | int) -> Any:  # noqa: ANN401
        [reply] = await self.execute_together("", [command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def execute_together(self, key: str, commands: Sequence[Command]) -> list[Any]:  # noqa: ARG002 - as above
        with _closed_connections_noticed():
            return await self._connections.send(commands)

    async def ask_primaries(self, *command: str) -> Mapping[str, Any]:
        return {"": await self.execute(*command)}

    async def primaries(self) -> Sequence[str]:
        return ("",)

    async def ask(self, server: str, *command: bytes | str | int) -> Any:  # noqa: ANN401, ARG002 - there is one server
        return await self.execute(*command)

    async def drop_idle_connections(self) -> None:
        await self._connections.drop_idle()

    async def close(self) -> None:
        await self.client.aclose()


class _Standalone(_OneClient):
    mode = "standalone"

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = options
        try:
            super().__init__(Redis.from_url(url, max_connections=MAX_CONNECTIONS, **options))
        except ValueError as error:
            raise ConfigurationError(f"the store's URL can't be used: {error}") from error

    def subscriber(self) -> Redis:
        return Redis.from_url(self._url, **_telling_of_losses(self._options))


class _Sentinel(_OneClient):
    mode = "sentinel"

    def __init__(self, url: SentinelUrl, options: Mapping[str, Any]) -> None:
        login = {"username": url.username or None, "password": url.password or None}
        self._service = url.service
        self._sentinel = Sentinels(url.hosts, sentinel_kwargs=dict(options), **options, **login)
        super().__init__(self._primary(max_connections=MAX_CONNECTIONS))
        self._watch = PrimaryWatch(self.client)

    def start(self) -> None:
        """Begin to look which server is the primary."""
        self._watch.start()

    def subscriber(self) -> Redis:
        return self._primary(**_telling_of_losses({}))

    def _primary(self, **options: Any) -> Redis:  # noqa: ANN401 - the client library's own
        master: Redis = self._sentinel.master_for(
            self._service, connection_pool_class=PrimaryConnections, connection_class=PrimaryConnection, **options
        )
        return master

    async def close(self) -> None:
        await self._watch.stop()
        await super().close()
        await self._sentinel.close()


class _Cluster:
    """A cluster; its client may swallow a cancellation, so each call is a task of its own that can be left behind."""

    mode = "cluster"

    def __init__(self, client: RedisCluster, address: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self._client = client
        self._address = address
        self._options = options
        self._calls: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(cls, url: str, options: Mapping[str, Any]) -> _Cluster:
        address = dict(parse_url(url))
        try:
            client = RedisCluster.from_url(url, max_connections=MAX_CONNECTIONS, **options)
        except (ValueError, TypeError, RedisClusterException) as error:
            raise ConfigurationError(f"the store's URL can't be used with a cluster: {error}") from error
        await client.initialize()
        if address.pop("connection_class", None) is SSLConnection:
            address["ssl"] = True
        return cls(client, address, options)

    def node_of(self, key: str) -> str:
        try:
            node = self._client.get_node_from_key(key)
        except RedisClusterException:
            return ""
        return "" if node is None else str(node.name)

    async def execute(self, *command: bytes | str | int) -> Any:  # noqa: ANN401
        return await self._left_behind_when_cancelled(self._client.execute_command(*command))

    async def execute_together(self, key: str, commands: Sequence[Command]) -> list[Any]:
        return await self._left_behind_when_cancelled(self._execute_together(key, commands))

    async def ask_primaries(self, *command: str) -> Mapping[str, Any]:
        return await self._left_behind_when_cancelled(self._ask_primaries(*command))

    async def primaries(self) -> Sequence[str]:
        return await self._left_behind_when_cancelled(self._primaries())

    async def ask(self, server: str, *command: bytes | str | int) -> Any:  # noqa: ANN401
        return await self._left_behind_when_cancelled(self._ask(server, *command))

    async def drop_idle_connections(self) -> None:
        for node in self._client.get_nodes():
            await node.disconnect_free_connections()

    def subscriber(self) -> Redis:
        node = self._client.get_random_node()
        options = {**self._address, **_telling_of_losses(self._options)}
        return Redis(**{**options, "host": node.host, "port": node.port})

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        # The client itself closes nothing while it has yet to find out anew which servers there are.
        await self._client.aclose()
        await self._client.nodes_manager.aclose()
        await self._client.nodes_manager.aclose("startup_nodes")

    async def _ask_primaries(self, *command: str) -> dict[str, Any]:
        await self._client.initialize()
        primaries = self._client.get_primaries()
        return {node.name: await self._client.execute_command(*command, target_nodes=node) for node in primaries}

    async def _primaries(self) -> tuple[str, ...]:
        await self._client.initialize()
        return tuple(node.name for node in self._client.get_primaries())

    async def _ask(self, server: str, *command: bytes | str | int) -> Any:  # noqa: ANN401
        node = self._client.get_node(node_name=server)
        if node is None:
            raise ClusterError(f"{server} is no server of the cluster any more")
        return await node.execute_command(*command)

    async def _execute_together(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Send them to the server that has the key, wherever that is by now; once more when a connection breaks."""
        await self._client.initialize()
        node, broken, asking = self._node(key), False, False
        for _ in range(REDIRECTIONS):
            replies = await _send_pipeline(node, commands, asking=asking)
            match replies[0]:
                case MovedError() as moved:  # a kind of AskError
                    await self._client.nodes_manager.move_slot(moved)
                    node, asking = self._node(key), False
                case AskError() as ask:
                    node, asking = self._client.get_node(host=ask.host, port=ask.port) or node, True
                case TryAgainError():
                    await asyncio.sleep(MOVING_SECONDS)
                case _:
                    lost = next((reply for reply in replies if _is_lost(reply)), None)
                    if lost is None:
                        return replies
                    await self._forget_servers()
                    if broken or isinstance(lost, RedisTimeoutError):
                        raise lost
                    node, asking, broken = self._node(key), False, True
        raise ClusterError(f"the server of {key} could not be found")

    def _node(self, key: str) -> ClusterNode:
        node: ClusterNode | None = self._client.get_node_from_key(key)
        if node is None:
            raise RedisClusterException(f"no server has {key}")
        return node

    async def _forget_servers(self) -> None:
        """Find out anew which servers there are, which is tried again with the next call if it fails."""
        await self._client.aclose()
        await self._client.initialize()

    async def _left_behind_when_cancelled(self, call: Coroutine[Any, Any, _Reply]) -> _Reply:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._note_end)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        with _closed_connections_noticed():
            return task.result()

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()


async def _send_pipeline(node: ClusterNode, commands: Sequence[Command], *, asking: bool) -> list[Any]:
    """Send commands over one connection of a server of a cluster; an error of one is its reply.

    A server that is about to get the key is asked before each of them.
    """
    step = 2 if asking else 1
    all_commands = [part for command in commands for part in (("ASKING",), command)[2 - step :]]
    sent = [PipelineCommand(position, *command) for position, command in enumerate(all_commands)]
    await node.execute_pipeline(sent)
    return [command.result for command in sent[step - 1 :: step]]


def _is_lost(reply: object) -> bool:
    """Return whether an error says that no answer came, rather than being one."""
    return isinstance(reply, Exception) and not isinstance(reply, ResponseError)


@contextmanager
def _closed_connections_noticed() -> Iterator[None]:
    """Name what the client library trips over when another call, which failed, has closed a connection just taken."""
    try:
        yield
    except AttributeError as error:
        raise RedisConnectionError("another call closed the connection") from error


def _telling_of_losses(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for listening: a connection that breaks is an error, not one to be mended unnoticed."""
    return {**options, "retry": Retry(NoBackoff(), 0, supported_errors=(RedisConnectionError,))}
