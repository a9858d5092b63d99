"""`topk-bandit personalizer`: Azure Personalizer's API on a bandit of a running service."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.commands.connection import add_connection, connect_async, key_of
from topk_bandit.commands.names import add_bandit, bandit_named
from topk_bandit.commands.numbers import number
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.hosts import is_loopback
from topk_bandit.domain.optional import missing

if TYPE_CHECKING:
    import argparse

    from topk_bandit.client import AsyncClient
    from topk_bandit.compat.personalizer.events import EventsFile
    from topk_bandit.compat.personalizer.loop import Loop
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.rpc.tls import ServerCertificate

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
    add_bandit(parser)
    add = parser.add_argument
    add("--listen", default="127.0.0.1:50090", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:50090)")
    add(
        "--tls-certificate",
        type=Path,
        metavar="FILE",
        help="certificate chain of the listener, PEM (default: plain text)",
    )
    add("--tls-private-key", type=Path, metavar="FILE", help="its private key; both are read again when they change")
    add(
        "--insecure", action="store_true", help="listen without TLS or without a key where other machines can call, too"
    )
    add(
        "--events-file",
        type=Path,
        metavar="FILE",
        default=Path("personalizer-events.db"),
        help="which slate an event is, so that rewards find it (default: personalizer-events.db)",
    )
    add(
        "--default-reward",
        type=number,
        default=0.0,
        metavar="NUMBER",
        help="of a slot without a reward (default: 0)",
    )
    add("--reward-wait", type=number, default=600.0, metavar="SECONDS", help="how long one may come (default: 600)")
    add("--keep-schema", action="store_true", help="leave out features that the bandit does not have")
    add("--apprentice", action="store_true", help="show the shop's own choice, and learn from it")
    add_connection(parser, seconds=_SECONDS)
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    if problem := missing("topk_bandit.compat.personalizer", "this command", extra="personalizer"):
        raise ConfigurationError(problem)
    asyncio.run(_serve(given, bandit_named(given.bandit)))
    return 0


async def _serve(given: argparse.Namespace, name: BanditName) -> None:
    from topk_bandit.compat.personalizer.events import EventsFile  # noqa: PLC0415 - other commands need not wait for it
    from topk_bandit.compat.personalizer.server import PersonalizerServer  # noqa: PLC0415

    host, port = _address(given)
    certificate = _certificate(given)
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    events = EventsFile(given.events_file, now=time.time)
    async with connect_async(given, name.tenant) as client:
        server = PersonalizerServer(_loop(given, name, client, events), key=key_of(given))
        bound = await server.start(host, port, tls=certificate.context if certificate else None)
        scheme, written = "https" if certificate else "http", given.listen.rpartition(":")[0]
        print(f"serving {name} at {scheme}://{written}:{bound}/personalizer/v1.0", flush=True)  # noqa: T201
        watching = asyncio.create_task(_renew(given, certificate)) if certificate else None
        await stop.wait()
        if watching:
            watching.cancel()
        await server.stop()
    events.close()


def _certificate(given: argparse.Namespace) -> ServerCertificate | None:
    from topk_bandit.rpc.tls import ServerCertificate  # noqa: PLC0415

    if (given.tls_certificate is None) != (given.tls_private_key is None):
        raise ConfigurationError("--tls-certificate and --tls-private-key: one needs the other")
    return ServerCertificate(given.tls_certificate, given.tls_private_key) if given.tls_certificate else None


async def _renew(given: argparse.Namespace, certificate: ServerCertificate) -> None:
    from topk_bandit.process.file_watch import FileWatch  # noqa: PLC0415

    files = [given.tls_certificate, given.tls_private_key]
    await FileWatch("--tls-certificate", files, certificate.reload).run()


def _loop(given: argparse.Namespace, name: BanditName, client: AsyncClient, events: EventsFile) -> Loop:
    from topk_bandit.compat.personalizer.bandits import BanditProvisioner, Defaults  # noqa: PLC0415
    from topk_bandit.compat.personalizer.loop import Loop  # noqa: PLC0415

    defaults = Defaults(given.default_reward, timedelta(seconds=given.reward_wait), given.keep_schema)
    provisioner = BanditProvisioner(client, defaults, clock=time.monotonic)
    return Loop(
        client,
        provisioner,
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
    missing = [flag for flag, is_there in _protections(given).items() if not is_there]
    if missing and not (given.insecure or is_loopback(host)):
        problem = f"--listen: {given.listen} can be reached from other machines"
        raise ConfigurationError(f"{problem}, without {' and '.join(missing)}: give them, or say --insecure")
    return host, int(port)


def _protections(given: argparse.Namespace) -> dict[str, bool]:
    return {"--tls-certificate": given.tls_certificate is not None, "--key-file": bool(key_of(given))}
