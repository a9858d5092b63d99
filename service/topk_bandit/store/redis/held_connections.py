"""Connections that are kept from call to call, and what is sent over them packed as one.

The client library makes them, and connects them again. Its pool looks after a connection whenever it is taken, its
pipeline makes an object of each command, and each reply has a timer of its own: three quarters of what a call costs.
Here a call is one write and its replies. `topk_bandit.store.redis.link` bounds each call as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from hiredis import pack_command
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis.asyncio import Redis
    from redis.asyncio.connection import AbstractConnection

__all__ = ["Command", "HeldConnections"]

Command: TypeAlias = tuple[bytes | str | int, ...]


class HeldConnections:
    """Connections of a client's pool, which counts them as in use.

    Parameters
    ----------
    client
        Whose pool they are of. Once it cuts them, as after a failover, they connect again with the next call.
    """

    def __init__(self, client: Redis) -> None:
        self._pool: Any = client.connection_pool
        self._callbacks: Mapping[Any, Any] = client.response_callbacks
        self._idle: list[AbstractConnection] = []

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together and return their replies, an error in the place of one.

        Where the connection breaks they are sent once more, over a new one.

        Raises
        ------
        redis.exceptions.ConnectionError
            It broke twice, or there is none.
        """
        connection = self._idle.pop() if self._idle else await self._open()
        try:
            try:
                replies = await _exchange(connection, commands)
            except RedisConnectionError:
                await connection.disconnect(nowait=True)
                replies = await _exchange(connection, commands)
        except BaseException:
            # What is still on its way would be taken for the reply of the next call.
            await connection.disconnect(nowait=True)
            raise
        finally:
            self._idle.append(connection)
        return [self._read(command, reply) for command, reply in zip(commands, replies, strict=True)]

    async def drop_idle(self) -> None:
        """Close the connections not in use: each connects again with its next call."""
        for connection in self._idle:
            await connection.disconnect(nowait=True)

    async def _open(self) -> AbstractConnection:
        connection: AbstractConnection = await self._pool.get_connection()
        connection.socket_timeout = None
        return connection

    def _read(self, command: Command, reply: Any) -> Any:  # noqa: ANN401 - replies have no narrower type
        read = self._callbacks.get(command[0])
        return reply if read is None or isinstance(reply, Exception) else read(reply)


async def _exchange(connection: AbstractConnection, commands: Sequence[Command]) -> list[Any]:
    await connection.send_packed_command([_pack(command) for command in commands], check_health=False)
    return [await _read_reply(connection) for _ in commands]


def _pack(command: Command) -> bytes:
    """Return what is sent for a command, whose name may be two words."""
    name, *arguments = command
    packed: bytes = pack_command((*str(name).split(), *arguments))  # type: ignore[arg-type]  # it takes any number
    return packed


async def _read_reply(connection: AbstractConnection) -> Any:  # noqa: ANN401 - as above
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error
