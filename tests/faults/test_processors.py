"""Two services on unlike processors and one store: one answer to a request, one log, and each other's snapshots."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.faults.service import Service, serving
from tests.processors import PROCESSORS, THIS, executable
from tests.servers import running_server, valkey_binary
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.client import BanditStats, Client

pytestmark = [pytest.mark.processors, pytest.mark.timeout(900)]

OTHER = PROCESSORS[0]
AFTER = ", after "
DIVERGENCES = "topk_bandit_model_divergences_total"


def stats_at_one_version(clients: list[Client]) -> list[BanditStats]:
    """Return the stats of all services once they have learned equally much."""
    found: list[BanditStats] = []

    def agree() -> bool:
        found[:] = [client.stats("home") for client in clients]
        return len({stats.model_version for stats in found}) == 1

    until(agree, what="the services have learned equally much")
    return found


def divergences(service: Service) -> float:
    lines = [line for line in service.page("/metrics")[1].splitlines() if line.startswith(DIVERGENCES)]
    return sum(float(line.split()[-1]) for line in lines)


def shop(clients: list[Client], rounds: range) -> None:
    """Ask all services the same, the first two by turns first, and reward what they answer through any."""
    for number in rounds:
        rng = np.random.default_rng([7, number])
        context = rng.normal(size=4).tolist()
        order = clients if number % 2 else (clients[1], clients[0], *clients[2:])
        answers = [client.recommend("home", context, request_id=f"q{number}") for client in order]
        assert all(answer == answers[0] for answer in answers)
        clients[int(rng.integers(len(clients)))].reward("home", answers[0].id, float(rng.random() < 0.4))


@pytest.mark.skipif(not executable(OTHER), reason=f"this processor can't stand for {OTHER}")
def test_unlike_services_share_a_log(folder: Path) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(running_server(valkey_binary()))
        services = [
            stack.enter_context(
                serving(folder / str(number), f"--redis-url={store.url}", "--workers=1", variables=processor.variables)
            )
            for number, processor in enumerate((THIS, OTHER, THIS))
        ]
        clients = [stack.enter_context(service.client()) for service in services]
        clients[0].create_bandit("home", slate_size=3, context_dimension=4, item_capacity=30)
        clients[0].upsert_items("home", [f"i{number}" for number in range(30)])
        # All have a model from the first event on, and none lags so far that the log is trimmed beyond its model: none
        # starts from a snapshot of an unlike one.
        for first in range(0, 320, 80):
            shop(clients, range(first, first + 80))
            here, there, here_too = stats_at_one_version(clients)
        assert here.observation_count == 320
        assert here.snapshot_position > 0
        assert here.log_digest == there.log_digest == here_too.log_digest
        assert here.arithmetic == here_too.arithmetic != there.arithmetic
        assert here.posterior_digest == here_too.posterior_digest != there.posterior_digest
        # Each comes back from a snapshot that the other may have made.
        for service, client in zip(services, clients, strict=True):
            service.kill_everything()
            service.start()
            clients[services.index(service)] = stack.enter_context(service.client())
            client.close()
        shop(clients, range(320, 400))
        here, there, here_too = stats_at_one_version(clients)
        assert here.observation_count == 400
        assert here.log_digest == there.log_digest == here_too.log_digest
        # All came back from one snapshot, which is of one of the two arithmetics.
        assert here.arithmetic == here_too.arithmetic != there.arithmetic
        assert here.posterior_digest == here_too.posterior_digest
        assert (AFTER in here.arithmetic) != (AFTER in there.arithmetic)
        assert here.noise_variance == pytest.approx(there.noise_variance, rel=1e-9)
        assert here.prior_variance == pytest.approx(there.prior_variance, rel=1e-9)
        assert [divergences(service) for service in services] == [0.0, 0.0, 0.0]
