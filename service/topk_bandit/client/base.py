"""What both clients are made of: all but the call itself."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import grpc

from topk_bandit.client.errors import ClientError, DeadlineExceeded, ErrorDetails
from topk_bandit.client.fallbacks import Fallbacks
from topk_bandit.client.late_rewards import LateRewards
from topk_bandit.client.operations import Operations
from topk_bandit.client.operator_operations import OperatorOperations
from topk_bandit.client.retries import Attempts, RetryPolicy
from topk_bandit.client.study_operations import StudyOperations
from topk_bandit.domain.ids import ID, ID_RULE

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.client.breakers import BreakerPolicy
    from topk_bandit.client.operations import Operation
    from topk_bandit.client.study_values import Design, Study
    from topk_bandit.client.values import Tls

__all__ = ["CHANNEL_OPTIONS", "WAIT_PAUSE_SECONDS", "BaseClient", "Waiting", "channel_credentials"]

WAIT_PAUSE_SECONDS = 0.05
"""Between two calls that wait for a design: a service that has too many of them answers at once."""

_LONGEST_WAIT_SECONDS = 5.0
_LONGEST_TIMEOUT_SECONDS = 1e9  # gRPC counts nanoseconds in 64 bits

# As much as the service sends: 10,000 items with the longest ids.
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024

CHANNEL_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # As over HTTP: an address is the service's, and a company's proxy would not reach loopback.
    ("grpc.enable_http_proxy", 0),
    # A connection of its own: those that a process shares among its clients all end at one worker.
    ("grpc.use_local_subchannel_pool", 1),
    # A service that comes back is found again within a retry or two, not after the seconds that are gRPC's default.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A peer that is gone without a word is noticed while calls wait for it.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5000),
)


def channel_credentials(tls: Tls) -> grpc.ChannelCredentials:
    """Return the credentials that `tls` describes."""
    return grpc.ssl_channel_credentials(tls.root_certificates, tls.private_key, tls.certificate_chain)


# Kept for good: what lets go of a parent's channel waits for threads that a forked process does not have.
_parents_channels: list[object] = []


class BaseClient:
    """The calls and the retries of one tenant's client."""

    _connections: Any
    _run: Callable[..., Any]
    _connect: Callable[[], None]

    def __init__(
        self,
        tenant: str,
        *,
        key: str | None,
        timeout: float,
        retry: RetryPolicy | None,
        fallback_timeout: float,
        breaker: BreakerPolicy | None,
        raise_late: bool,
        clock: Callable[[], float],
        random: Callable[[], float],
        new_request_id: Callable[[], str],
    ) -> None:
        if not ID.fullmatch(str(tenant)) or tenant is None:
            raise ValueError(f"tenant must be {ID_RULE}, not {tenant!r}")
        self._operations = Operations(tenant, new_request_id=new_request_id)
        self._studies = StudyOperations(tenant, new_request_id=new_request_id)
        self._operators = OperatorOperations(tenant)
        self._metadata = _authorization(key)
        self._timeout = _check_timeout(timeout)
        self._fallback_timeout = _check_timeout(fallback_timeout)
        self._fallbacks = Fallbacks(breaker, clock=clock)
        self._late = LateRewards(raises=raise_late)
        self._retry = retry or RetryPolicy()
        self._clock = clock
        self._random = random
        self._is_closed = False

    @property
    def _goes_over_forks(self) -> bool:
        """Whether a forked process can use it, too; an asynchronous client has an event loop, which it can't."""
        return not inspect.iscoroutinefunction(self._run)

    def _before_fork(self) -> None:
        """Let nothing go on that no caller waits for."""
        if self._goes_over_forks:
            self._connections.before_fork()

    def _after_fork(self, *, is_child: bool) -> None:
        """Share nothing with the process that this one was forked from."""
        if self._is_closed or not is_child or not self._goes_over_forks:
            return
        self._fallbacks.renew()
        self._late.renew()
        _parents_channels.append(self._connections)
        self._connect()

    def _attempts(self, operation: Operation[Any], timeout: float | None) -> Attempts:
        return Attempts(
            self._retry,
            repeatable=operation.repeatable,
            timeout=self._timeout if timeout is None else _check_timeout(timeout),
            clock=self._clock,
            random=self._random,
        )

    def _waiting(self, timeout: float) -> Waiting:
        return Waiting(_check_timeout(timeout), clock=self._clock)


class Waiting:
    """A wait for a design, in as many calls as it takes."""

    def __init__(self, timeout: float, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._deadline = clock() + timeout

    def seconds(self) -> float:
        """Return how many seconds the next call may take, or raise `DeadlineExceeded`."""
        left = self._deadline - self._clock()
        if left <= 0.0:
            raise DeadlineExceeded(ErrorDetails("DEADLINE_EXCEEDED", "the design was not done in time; it goes on"))
        return min(left, _LONGEST_WAIT_SECONDS)

    def result(self, design: Design) -> Study:
        """Return what a design that has ended led to, or raise its error."""
        if design.result is None:
            raise design.error or ClientError(ErrorDetails("UNKNOWN", "the design ended without a result"))
        return design.result


def _authorization(key: str | None) -> tuple[tuple[str, str], ...]:
    if key is None:
        return ()
    if not re.fullmatch(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", key):
        raise ValueError("key must be id.secret, as `topk-bandit keys create` prints it")
    return (("authorization", f"Bearer {key}"),)


def _check_timeout(timeout: object) -> float:
    if not isinstance(timeout, int | float) or not 0.0 < timeout <= _LONGEST_TIMEOUT_SECONDS:
        most = f"{_LONGEST_TIMEOUT_SECONDS:g}"
        raise ValueError(f"timeout must be a positive number of seconds, at most {most}, not {timeout!r}")
    return timeout
