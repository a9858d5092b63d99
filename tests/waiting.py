"""Waits for what happens. Their limit ends a hang and nothing else: no test is held to a time."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import redis

from topk_bandit.client import ClientError
from topk_bandit.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PATIENCE", "until", "until_async"]

PATIENCE = 240.0
"""Seconds after which a wait fails: far more than a machine takes that does ten times as much beside the tests."""

NOT_YET = (ClientError, UnavailableError, grpc.RpcError, redis.RedisError, OSError)


def until(holds: Callable[[], Any], *, what: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition; a call that fails counts as not yet."""
    end = time.monotonic() + seconds
    seen: object = None
    while time.monotonic() < end:
        try:
            seen = holds()
        except NOT_YET as error:
            seen = error
        if seen and not isinstance(seen, Exception):
            return
        time.sleep(0.02)
    pytest.fail(f"not within {seconds:g} s: {what}; last seen: {seen!r}")


async def until_async(holds: Callable[[], Any], *, what: str) -> None:
    """Wait for a condition, which may be a coroutine's, while the event loop goes on; a call that fails is not yet."""
    end = time.monotonic() + PATIENCE
    seen: object = None
    while time.monotonic() < end:
        try:
            seen = holds()
            seen = await seen if inspect.isawaitable(seen) else seen
        except NOT_YET as error:
            seen = error
        if seen and not isinstance(seen, Exception):
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"not within {PATIENCE:g} s: {what}; last seen: {seen!r}")
