"""`topk-bandit personalizer`: Azure Personalizer's API on a bandit of a running service."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.commands.connection import add_connection, connect_async, key_of
from topk_bandit.commands.names import bandit_named
from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse

    from topk_bandit.client import AsyncClient
    from topk_bandit.compat.personalizer.events import EventsFile
    from topk_bandit.compat.personalizer.loop import Loop
    from topk_bandit.domain.bandits import BanditName

__all__ = ["DESCRIPTION", "add_arguments"]

_SECONDS = 2.0

DESCRIPTION = """\
Listen for the calls of Azure Personalizer's clients, single-slot and multi-slot, and answer them with a bandit of a
running service: a shop changes its base URL. The bandit is made at the first Rank, and one for each number of slots.

  topk-bandit personalizer shop/home
  curl http://127.0.0.1:50090/personalizer/v1.0/rank -d '{"actions": [{"id": "tea", "features": []}]}'

Its calls show the service's key, if it has one, in the header Ocp-Apim-Subscription-Key.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser, with a `run` that returns an exit status."""
    parser.add_argument("bandit", metavar="TENANT/BANDIT", help="which one; tenants/TENANT/bandits/BANDIT is as good")
    add = parser.add_argument
    add("--listen", default="127.0.0.1:50090", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:50090)")
    add("--insecure", action="store_true", help="listen in plain text where other machines can call, too")
    add(
        "--events-file",
        type=Path,
        metavar="FILE",
        default=Path("personalizer-events.db"),
        help="which slate an event is, so that rewards find it (default: personalizer-events.db)",
    )
    add("--default-reward", type=float, default=0.0, metavar="NUMBER", help="of a slot without a reward (default: 0)")
    add("--reward-wait", type=float, default=600.0, metavar="SECONDS", help="how long one may come (default: 600)")
    add("--keep-schema", action="store_true", help="leave out features that the bandit does not have")
    add("--apprentice", action="store_true", help="show the shop's own choice, and learn from it")
    add_connection(parser, seconds=_SECONDS)
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    asyncio.run(_serve(given, bandit_named(given.bandit)))
    return 0


async def _serve(given: argparse.Namespace, name: BanditName) -> None:
    from topk_bandit.compat.personalizer.events import EventsFile  # noqa: PLC0415 - other commands need not wait for it
    from topk_bandit.compat.personalizer.server import PersonalizerServer  # noqa: PLC0415

    host, port = _address(given)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    events = EventsFile(given.events_file, now=time.time)
    async with connect_async(given, name.tenant) as client:
        server = PersonalizerServer(_loop(given, name, client, events), key=key_of(given))
        bound = await server.start(host, port)
        print(f"serving {name} at http://{given.listen.rpartition(':')[0]}:{bound}/personalizer/v1.0", flush=True)  # noqa: T201
        await stop.wait()
        await server.stop()
    events.close()


def _loop(given: argparse.Namespace, name: BanditName, client: AsyncClient, events: EventsFile) -> Loop:
    from topk_bandit.compat.personalizer.bandits import Defaults, Keeper  # noqa: PLC0415
    from topk_bandit.compat.personalizer.loop import Loop  # noqa: PLC0415

    defaults = Defaults(given.default_reward, timedelta(seconds=given.reward_wait), given.keep_schema)
    keeper = Keeper(client, defaults, clock=time.monotonic)
    return Loop(
        client,
        keeper,
        events,
        bandit=name.bandit,
        apprentice=given.apprentice,
        new_id=lambda: uuid.uuid4().hex,
    )


def _address(given: argparse.Namespace) -> tuple[str, int]:
    host, _, port = given.listen.rpartition(":")
    host = host.strip("[]")
    if not (host and port.isdecimal()):
        raise ConfigurationError(f"--listen: expected HOST:PORT, got {given.listen!r}")
    if not (given.insecure or _is_loopback(host)):
        problem = f"--listen: {given.listen} can be reached from other machines, in plain text"
        raise ConfigurationError(f"{problem}: put what ends TLS in front of it, or say --insecure")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # any other name may come to mean another address
        return host == "localhost"
