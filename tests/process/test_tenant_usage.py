"""What named tenants use, on the page of a real service that is called over gRPC and HTTP."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.faults.service import serving
from tests.waiting import PATIENCE, until

from topk_bandit.client import Client, NotFound, ResourceExhausted, RetryPolicy
from topk_bandit.process.metrics import Metrics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

SERIES = re.compile(r"^topk_bandit_tenant_(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
RECOMMEND = ("topk_bandit.v1.RecommenderService", "Recommend")
ONCE = RetryPolicy(initial_backoff=1000.0, max_backoff=1000.0)


def used(service: Service) -> dict[str, float]:
    """Return each series that counts tenants, without those of how long calls took."""
    found = SERIES.findall(service.page("/metrics")[1])
    return {f"{name}{{{labels}}}": float(value) for name, labels, value in found if "seconds" not in name}


def calls(tenant: str, *, recommend: float, reward: float, other: float) -> dict[str, float]:
    counts = {"recommend": recommend, "reward": reward, "other": other}
    return {f'calls_total{{kind="{kind}",tenant="{tenant}"}}': count for kind, count in counts.items()}


def shop(client: Client, *, slates: int) -> None:
    client.create_bandit("home", slate_size=1, item_capacity=4)
    client.upsert_items("home", ["tea", "milk"])
    for _ in range(slates):
        client.reward("home", client.recommend("home").id, 1.0)


@pytest.mark.slow
def test_named_tenants_have_what_they_use_and_all_others_have_the_rest(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("[acme]\nbandits = 1\n", encoding="utf-8")
    flags = ("--metrics-tenants=acme,silent", f"--quotas-file={quotas}", "--workers=1")
    with serving(tmp_path / "data", *flags) as service:
        shop(service.client(tenant="acme"), slates=3)
        shop(service.client(tenant="small"), slates=2)
        shop(service.client(tenant="tiny"), slates=1)
        with Client(f"http://{service.http_address}", tenant="acme", retry=ONCE, timeout=PATIENCE) as over_http:
            over_http.recommend("home")
            with pytest.raises(ResourceExhausted):
                over_http.create_bandit("second", slate_size=1, item_capacity=4)
        with service.client(tenant="acme") as acme, pytest.raises(NotFound):
            acme.recommend("none")
        # A call that fails is counted once its client has the answer.
        until(
            lambda: used(service)['calls_total{kind="recommend",tenant="acme"}'] == 5, what="the last call is counted"
        )
        found = used(service)
        times = dict(re.findall(r'call_seconds_total\{tenant="(\w+)"\} (\S+)', service.page("/metrics")[1]))
    refused = {
        f'refusals_total{{tenant="{tenant}"}}': count
        for tenant, count in (("acme", 1.0), ("silent", 0.0), ("other", 0.0))
    }
    assert found == {
        **calls("acme", recommend=5, reward=3, other=3),
        **calls("silent", recommend=0, reward=0, other=0),
        **calls("other", recommend=3, reward=3, other=found['calls_total{kind="other",tenant="other"}']),
        **refused,
    }
    assert found['calls_total{kind="other",tenant="other"}'] >= 4  # and what no tenant has: health, say
    assert float(times["acme"]) > float(times["silent"]) == 0.0


def test_a_service_that_names_none_has_no_series() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, methods=[RECOMMEND])
    metrics.rpc_handled(*RECOMMEND, "OK", 0.1)
    metrics.quota_refused("bandits", "acme")
    assert not SERIES.findall(generate_latest(registry).decode())


def test_a_call_about_nothing_is_one_of_the_others() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, methods=[RECOMMEND], tenants=["acme"])
    metrics.rpc_handled(*RECOMMEND, "UNAUTHENTICATED", 0.25)
    assert registry.get_sample_value("topk_bandit_tenant_calls_total", {"tenant": "other", "kind": "recommend"}) == 1.0
    assert registry.get_sample_value("topk_bandit_tenant_call_seconds_total", {"tenant": "other"}) == 0.25
    assert registry.get_sample_value("topk_bandit_tenant_calls_total", {"tenant": "acme", "kind": "recommend"}) == 0.0
