"""`topk-bandit personalizer` in a process of its own, before a real service: a base URL is all that changes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.ai.personalizer import PersonalizerClient
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from tests.compat.personalizer.listeners import rank_body, slots_body
from tests.faults.service import COMMAND, Service, clean_environment, serving
from tests.rpc.certificates import write_pair
from tests.waiting import PATIENCE, until

from topk_bandit.client import NotFound
from topk_bandit.commands.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topk_bandit.client import Client

pytestmark = pytest.mark.slow  # it runs whole services

LONG_STORE_CALLS = "--store-timeout-seconds=60"
LONG_CALLS = ("--timeout", str(PATIENCE))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data"), LONG_STORE_CALLS) as service:
        yield service


@contextlib.contextmanager
def listening(service: Service, folder: Path, *flags: str) -> Iterator[str]:
    """Run the command until the end of the block, where it ends well; yield its base URL."""
    where = ("--listen", "127.0.0.1:0", "--address", service.address)
    command = [COMMAND, "personalizer", "acme/home", *where, *LONG_CALLS, *flags]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=clean_environment()) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"serving tenants/acme/bandits/home at (\S+)/v1\.0", process.stdout.readline())
            assert found
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0


def rewards_of(client: Client, name: str) -> int:
    try:
        return client.stats(name).observation_count
    except NotFound:
        return 0


def post(url: str, body: object, *, key: str = "any", trusted: Path | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Ocp-Apim-Subscription-Key": key})
    context = ssl.create_default_context(cafile=trusted) if trusted else None
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_loop_runs_and_events_outlive_the_listener(service: Service, tmp_path: Path) -> None:
    with listening(service, tmp_path) as base:
        status, ranked = post(f"{base}/v1.0/rank", rank_body())
        assert (status, ranked["eventId"]) == (201, rank_body()["eventId"])
    with listening(service, tmp_path) as base:
        assert post(f"{base}/v1.0/events/{ranked['eventId']}/reward", {"value": 1}) == (204, None)
    assert (tmp_path / "personalizer-events.db").exists()
    with service.client(tenant="acme", timeout=PATIENCE) as client:
        assert client.get_bandit("home").reward_wait.total_seconds() == 600.0


def test_personalizers_own_client_works(service: Service, tmp_path: Path) -> None:
    slots, learned = [slot["id"] for slot in slots_body()["slots"]], {"home": 2, "home-2-slots": 1}
    with (
        listening(service, tmp_path) as base,
        PersonalizerClient(base.removesuffix("/personalizer"), AzureKeyCredential("any")) as shop,
        service.client(tenant="acme", timeout=PATIENCE) as client,
    ):
        before = {name: rewards_of(client, name) for name in learned}
        for deferred in (False, True):
            ranked = shop.rank(rank_body(eventId=f"own-{deferred}", deferActivation=deferred))
            chances = {action["id"]: action["probability"] for action in ranked["ranking"]}
            assert ranked["eventId"] == f"own-{deferred}"
            assert ranked["ranking"][0]["id"] == ranked["rewardActionId"]
            assert chances["cup"] == 0.0
            assert sum(chances.values()) == pytest.approx(1.0)
            shop.activate(ranked["eventId"])
            shop.reward(ranked["eventId"], {"value": 0.5})

        placed = shop.rank_multi_slot(slots_body(eventId="own-slots", deferActivation=True))
        assert [slot["id"] for slot in placed["slots"]] == slots
        assert placed["slots"][0]["rewardActionId"] != "sports"
        shop.activate_multi_slot("own-slots")
        shop.reward_multi_slot("own-slots", {"reward": [{"slotId": slot, "value": 1.0} for slot in slots]})
        assert {name: rewards_of(client, name) - before[name] for name in learned} == learned

        with pytest.raises(ResourceNotFoundError, match="ResourceNotFound"):
            shop.reward("never-ranked", {"value": 1.0})
        with pytest.raises(HttpResponseError, match="actions: expected a list of objects"):
            shop.rank({"actions": []})


def test_a_service_that_is_away_is_reported_in_personalizers_shape(service: Service, tmp_path: Path) -> None:
    with listening(service, tmp_path, "--timeout", "0.5") as base:
        [worker] = service.worker_pids
        os.kill(worker, signal.SIGSTOP)
        try:
            status, body = post(f"{base}/v1.0/rank", rank_body(eventId="away"))
        finally:
            os.kill(worker, signal.SIGCONT)
        assert (status, body["error"]["code"]) == (503, "ServiceUnavailable")


def test_ranks_are_answered_while_the_store_is_away_and_have_no_event(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as service, listening(service, tmp_path) as base:
        assert post(f"{base}/v1.0/rank", rank_body(eventId="before"))[0] == 201
        os.kill(service.store_pid, signal.SIGSTOP)
        try:
            status, ranked = post(f"{base}/v1.0/rank", rank_body(eventId="degraded"))
        finally:
            os.kill(service.store_pid, signal.SIGCONT)
        assert (status, ranked["eventId"]) == (201, "degraded")
        status, body = post(f"{base}/v1.0/events/degraded/reward", {"value": 1})
        assert (status, body["error"]["code"]) == (404, "ResourceNotFound")


def test_the_services_key_is_the_subscription_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys, shown = tmp_path / "keys.json", tmp_path / "key"
    scopes = [f"--scope={scope}" for scope in ("recommend", "reward", "manage")]
    assert main(["keys", "create", f"--keys-file={keys}", "--tenant=acme", *scopes]) == 0
    shown.write_text(capsys.readouterr().out)
    key = shown.read_text().strip()
    with (
        serving(tmp_path / "data", f"--keys-file={keys}", LONG_STORE_CALLS) as locked,
        listening(locked, tmp_path, f"--key-file={shown}") as base,
    ):
        assert post(f"{base}/v1.0/rank", rank_body())[0] == 401
        assert post(f"{base}/v1.0/rank", rank_body(), key=key)[0] == 201
        path = f"{base}/v1.0/events/{rank_body()['eventId']}"
        assert post(f"{path}/reward", {"value": 1}, key=key)[0] == 204
        assert post(f"{path}/activate", {}, key=key)[0] == 204


def test_it_speaks_https_also_with_a_certificate_that_was_renewed(service: Service, tmp_path: Path) -> None:
    certificate, private_key = write_pair(tmp_path)
    flags = f"--tls-certificate={certificate}", f"--tls-private-key={private_key}"
    with listening(service, tmp_path, *flags) as base:
        url = f"{base}/v1.0/rank"
        assert url.startswith("https://")
        assert post(url, rank_body(), trusted=certificate)[0] == 201
        write_pair(tmp_path)
        until(lambda: post(url, rank_body(), trusted=certificate)[0] == 201, what="the new certificate is shown")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--listen", "0.0.0.0:50090"], "can be reached from other machines, without --tls-certificate and --key-file"),
        (["--tls-certificate", "one.pem"], "one needs the other"),
        (["--tls-certificate", "one.pem", "--tls-private-key", "two.pem"], "can't be used"),
        (["--listen", "50090"], "expected HOST:PORT"),
        (["--events-file", "/dev/null/events.db"], "can't keep events"),
        (["--address", "127.0.0.1:1"], "no service answers"),
    ],
)
def test_what_is_wrong_with_the_call_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["personalizer", "acme/home", *flags]) == 1
    assert problem in capsys.readouterr().err


def test_the_calls_of_the_page_work(service: Service, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "from-personalizer.md").read_text(encoding="utf-8")
    calls = re.findall(r"^    (curl .*?)$(?=\n    curl|\n\n)", page, flags=re.MULTILINE | re.DOTALL)
    assert len(calls) == 2
    with listening(service, tmp_path) as base:
        for call, status in zip(calls, (201, 204), strict=True):
            command = call.replace("http://127.0.0.1:50090/personalizer", base) + " -s -w '%{http_code}'"
            done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
            assert done.stdout.endswith(str(status)), done.stdout
