"""What both clients are made of: all but the call itself."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import grpc

from topk_bandit.client.operations import Operations
from topk_bandit.client.retries import Attempts, RetryPolicy
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub
from topk_bandit.v1.recommender_service_pb2_grpc import RecommenderServiceStub

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.client.operations import Operation
    from topk_bandit.client.values import Tls

__all__ = ["CHANNEL_OPTIONS", "STUBS", "BaseClient", "channel_credentials"]

STUBS: tuple[type[Any], ...] = (BanditServiceStub, RecommenderServiceStub)

# As much as the service sends: 10,000 items with the longest ids.
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024

CHANNEL_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
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


class BaseClient:
    """The calls and the retries of one tenant's client."""

    def __init__(
        self,
        tenant: str,
        *,
        timeout: float,
        retry: RetryPolicy | None,
        clock: Callable[[], float],
        random: Callable[[], float],
        new_request_id: Callable[[], str],
    ) -> None:
        self._operations = Operations(tenant, new_request_id=new_request_id)
        self._timeout = _checked(timeout)
        self._retry = retry or RetryPolicy()
        self._clock = clock
        self._random = random

    def _attempts(self, operation: Operation[Any], timeout: float | None) -> Attempts:
        return Attempts(
            self._retry,
            repeatable=operation.repeatable,
            timeout=self._timeout if timeout is None else _checked(timeout),
            clock=self._clock,
            random=self._random,
        )


def _checked(timeout: float) -> float:
    if not 0.0 < timeout < math.inf:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
    return timeout
