"""A store that loses all that it has, or a part of it, or is another one: it is noticed and counted.

Nothing is made anew over what is lost.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faults.service import COMMAND, clean_environment, serving
from tests.long_forms import LONG
from tests.servers import free_port, running_server, valkey_binary
from tests.test_watching import watching
from tests.waiting import PATIENCE, until

from topk_bandit.client import NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from tests.faults.service import Service
    from tests.servers import RunningServer

    from topk_bandit.client import Client

pytestmark = pytest.mark.slow

BANDITS, PAIRS = ("first", "second", "third"), 12
REPLACED = "topk_bandit_store_replaced "
LOST = "topk_bandit_lost_events_total"


def furnish(service: Service) -> tuple[int, int]:
    """Return how many events there are, and how many rewards."""
    events = 0
    with service.client(tenant="acme") as client:
        for bandit in BANDITS:
            client.create_bandit(bandit, slate_size=2, item_capacity=9)
            client.upsert_items(bandit, ["a", "b", "c"])
            for _ in range(PAIRS):
                client.reward(bandit, client.recommend(bandit).id, 0.5)
            until(lambda name=bandit: is_learned(client, name), what="all is learned")
            events += client.stats(bandit).log_position
    return events, len(BANDITS) * PAIRS


def is_learned(client: Client, bandit: str) -> bool:
    stats = client.stats(bandit)
    return stats.model_version == stats.log_position


def metric(service: Service, name: str) -> float:
    return sum(float(line.split()[-1]) for line in service.page("/metrics")[1].splitlines() if line.startswith(name))


def doctor(*flags: str) -> str:
    command = [COMMAND, "doctor", *flags]
    environment = clean_environment()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=PATIENCE)
    return done.stdout


def counted(service: Service) -> tuple[int, int]:
    """Return how many events and rewards the log says are lost."""
    found = [record for record in service.records if "lost_events" in record]
    return sum(record["lost_events"] for record in found), sum(record["lost_rewards"] for record in found)


def test_a_store_that_was_emptied_is_noticed_and_counted_and_not_filled_anew(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=2") as service:
        events, rewards = furnish(service)
        assert metric(service, REPLACED) == 0
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            kept = {key: store.dump(key) for key in store.scan_iter("*")}
            store.flushall()
            until(lambda: counted(service) == (events, rewards), what="all that was known is counted")
            until(lambda: metric(service, REPLACED) == 1, what="the metric shows it")
            assert metric(service, LOST) == events
            with service.client(tenant="acme") as client, pytest.raises(Unavailable, match="has lost all its data"):
                client.create_bandit("first", slate_size=2, item_capacity=9, timeout=1.0)
            with service.client(tenant="acme") as client:
                # The models are still there, and a page has its slates.
                assert all(client.recommend(bandit).degraded for bandit in BANDITS)
            assert "wrong identity" in doctor(f"--data-dir={tmp_path}")
            # A worker that is started meanwhile knows it from the supervisor.
            os.kill(service.worker_pids[0], signal.SIGKILL)
            service.until_ready()
            with service.client(tenant="acme") as client, pytest.raises(Unavailable, match="has lost all its data"):
                client.create_bandit("first", slate_size=2, item_capacity=9, timeout=1.0)
            store.flushall()
            for key, value in kept.items():
                store.restore(key, 0, value, replace=True)
            until(lambda: metric(service, REPLACED) == 0, what="the store is the one again")
        with service.client(tenant="acme") as client:
            assert sum(client.stats(bandit).log_position for bandit in BANDITS) == events
    # A service that is started takes the store as it is.
    with serving(tmp_path) as service:
        assert metric(service, REPLACED) == 0


def test_a_store_that_lost_its_id_alone_is_still_the_same(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        furnish(service)
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            [programs] = store.keys("*:programs")
            store.delete(programs)
            until(
                lambda: any("not its data" in record.get("message", "") for record in service.records),
                what="the log says so",
            )
        assert counted(service) == (0, 0)
        with service.client(tenant="acme") as client:
            client.recommend("first")


def wrong_losses(data: Path) -> str:
    return next(iter(re.findall(r"wrong losses: .*\n.*", doctor(f"--data-dir={data}"))), "")


@pytest.mark.parametrize("lost", ["a bandit", "a tenant"])
def test_bandits_that_nobody_deleted_are_counted(tmp_path: Path, lost: str) -> None:
    with serving(tmp_path, "--workers=2") as service:
        events, rewards = furnish(service)
        keys = "*acme/second}*" if lost == "a bandit" else "*{acme*"
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            store.delete(*store.scan_iter(keys))
            part = 1 if lost == "a tenant" else len(BANDITS)
            expected = (events // part, rewards // part)
            until(lambda: counted(service) == expected, what="what was known of them is counted")
            assert metric(service, LOST) == events // part
        with service.client(tenant="acme") as client:
            if lost == "a bandit":
                client.delete_bandit("third")
                client.create_bandit("fourth", slate_size=2, item_capacity=9)
        assert ("tenants/acme/bandits/second" if lost == "a bandit" else "tenants/acme") in wrong_losses(tmp_path)
        with service.client(tenant="acme") as client, pytest.raises(NotFound):
            client.recommend("second")
        assert counted(service) == expected, "what was deleted is no loss"


def notes_of(client: redis.Redis) -> dict[bytes, bytes]:
    """Return what the store has of each worker that runs."""
    [programs] = client.keys("*:programs")
    return {name: note for name, note in client.hgetall(programs).items() if b" on " in note}


@dataclass(frozen=True)
class Copy:
    """A server, and the files that it had some time ago."""

    server: RunningServer
    log: Path
    dump: Path
    noted: dict[bytes, bytes]

    def until_workers_are_noted(self) -> None:
        """Wait until the store has a newer note of each worker than the copy: the copy is older then."""
        with self.server.client() as client:
            until(lambda: not self.noted.items() & notes_of(client).items(), what="each worker is noted again")

    def replace_log(self, log: Path | None) -> None:
        """Start the server with another log, or with none."""
        self.server.kill()
        shutil.rmtree(self.server.folder / "appendonlydir")
        if log is not None:
            shutil.copytree(log, self.server.folder / "appendonlydir")
        self.server.start()


def empty(copy: Copy) -> None:
    with copy.server.client() as client:
        client.flushall()


def remove_files(copy: Copy) -> None:
    copy.replace_log(None)


def put_in_a_dump_alone(copy: Copy) -> None:
    """A server with an append-only file reads no RDB file: it begins empty."""
    shutil.copy(copy.dump, copy.server.folder / "dump.rdb")
    copy.replace_log(None)


def load_the_dump(copy: Copy) -> None:
    with copy.server.client() as client:
        client.config_set("appendonly", "no")
        shutil.copy(copy.dump, copy.server.folder / "dump.rdb")
        client.execute_command("DEBUG", "RELOAD", "NOSAVE")
        client.config_set("appendonly", "yes")


def put_in_the_older_log(copy: Copy) -> None:
    copy.replace_log(copy.log)


def exchange_databases(copy: Copy) -> None:
    with copy.server.client() as client:
        client.swapdb(0, 1)


def delete_a_log(copy: Copy) -> None:
    with copy.server.client() as client:
        client.delete(*client.scan_iter("*acme/first}:log"))


@dataclass(frozen=True)
class Loss:
    """A fault, what is lost by it, and which alerts and lines of `doctor` report it.

    Attributes
    ----------
    lost
        "all", "newer" for what came after the copy, or "a log".
    """

    cause: Callable[[Copy], None]
    lost: str
    alerts: Collection[str]
    found: Collection[str]


REPLACED_ALERTS, SHORT_ALERTS = ("StoreReplaced", "EventsLost"), ("LogReplaced", "EventsLost")
FOUND_SHORT = (
    "lost events: tenants/acme/bandits/first: 8 events, 4 of them rewards",
    "1 are gone",
    "acme/bandits/late",
)
TABLE = [
    Loss(empty, "all", REPLACED_ALERTS, ["wrong identity"]),
    Loss(remove_files, "all", REPLACED_ALERTS, ["wrong identity"]),
    Loss(put_in_a_dump_alone, "all", REPLACED_ALERTS, ["wrong identity"]),
    Loss(exchange_databases, "all", REPLACED_ALERTS, ["wrong identity"]),
    Loss(put_in_the_older_log, "newer", SHORT_ALERTS, FOUND_SHORT),
    Loss(load_the_dump, "newer", SHORT_ALERTS, FOUND_SHORT),
    Loss(delete_a_log, "a log", SHORT_ALERTS, ["acme/bandits/first: its log is gone"]),
]


def trade(client: Client, bandit: str, pairs: int) -> tuple[int, int]:
    """Return how many events and rewards a bandit has after some more."""
    for _ in range(pairs):
        client.reward(bandit, client.recommend(bandit).id, 0.5)
    until(lambda: is_learned(client, bandit), what="all is learned")
    stats = client.stats(bandit)
    return stats.log_position, stats.observation_count


def take_copy(server: RunningServer, folder: Path) -> Copy:
    with server.client() as client:
        noted = notes_of(client)
        client.save()
    shutil.copytree(server.folder / "appendonlydir", folder / "copy")
    shutil.copy(server.folder / "dump.rdb", folder / "copied.rdb")
    return Copy(server, folder / "copy", folder / "copied.rdb", noted)


@pytest.mark.long_form
@pytest.mark.parametrize(
    "loss",
    [one for one in TABLE if LONG or one.cause in {put_in_the_older_log, delete_a_log}],
    ids=lambda loss: loss.cause.__name__,
)
def test_a_loss_is_reported_with_what_was_known(tmp_path: Path, loss: Loss) -> None:
    target = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        server = stack.enter_context(
            running_server(valkey_binary(), config=["appendfsync always", "enable-debug-command yes"])
        )
        flags = (f"--redis-url={server.url}", f"--metrics-listen={target}", "--workers=2")
        service = stack.enter_context(serving(tmp_path, *flags, excused="can't be followed"))
        if LONG:
            (folder := tmp_path / "prometheus").mkdir()
            prometheus = stack.enter_context(watching(folder, target))
        events, rewards = furnish(service)
        copy = take_copy(server, tmp_path)
        with service.client(tenant="acme") as client:
            first = trade(client, "first", 4)
            client.create_bandit("late", slate_size=2, item_capacity=9)
            client.upsert_items("late", ["a", "b", "c"])
            late = trade(client, "late", 4)
        newer = 8 + late[0], 4 + late[1]
        expected = {"all": (events + newer[0], rewards + newer[1]), "newer": newer, "a log": first}[loss.lost]
        copy.until_workers_are_noted()
        loss.cause(copy)
        until(lambda: counted(service) == expected, what=f"{expected} are counted")
        until(lambda: metric(service, LOST) == expected[0], what="the metric has them")
        said = doctor(f"--redis-url={server.url}")
        assert all(one in said for one in loss.found), said
        if LONG:
            alerts = {f"TopkBandit{name}" for name in loss.alerts}
            until(lambda: alerts <= prometheus.firing(), what=f"{sorted(alerts)} fire")


def test_what_is_lost_for_good_leaves_the_list(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        furnish(service)
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            store.delete(*store.scan_iter("*acme/second}*"))
        until(lambda: "acme/bandits/second" in wrong_losses(tmp_path), what="doctor names it")
        with service.client(tenant="acme") as client:
            until(lambda: client.delete_bandit("second") is None, what="it can be deleted")
            assert wrong_losses(tmp_path) == ""
            with pytest.raises(NotFound):
                client.delete_bandit("second")


def test_evicted_keys_are_counted_though_the_store_evicts_no_more(tmp_path: Path) -> None:
    with serving(tmp_path, excused="can't be") as service:
        furnish(service)
        with redis.Redis(unix_socket_path=str(tmp_path / "valkey.sock")) as store:
            store.config_set("maxmemory-policy", "allkeys-random")
            limit = store.info("memory")["used_memory"]
            while not store.info("stats")["evicted_keys"]:
                store.config_set("maxmemory", limit := limit - 4096)
            store.config_set("maxmemory", 0, "maxmemory-policy", "noeviction")
            evicted = store.info("stats")["evicted_keys"]
        problem = f"has evicted {evicted} keys"
        until(lambda: any(problem in one.get("message", "") for one in service.records), what="the log has the number")
        until(lambda: metric(service, "topk_bandit_store_problems ") > 0, what="the metric shows a problem")
        assert problem in doctor(f"--data-dir={tmp_path}")
