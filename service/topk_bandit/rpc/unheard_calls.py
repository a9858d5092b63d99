"""Hooks of calls for those who count none; here, so that who counts nothing but metrics loads no servicer."""

from __future__ import annotations

__all__ = ["UnheardCalls"]


class UnheardCalls:
    """Hooks of calls that nobody counts: another worker has counted them."""

    def rpc_started(self, service: str, method: str) -> None:
        """See `RpcHooks.rpc_started`."""

    def rpc_handled(self, service: str, method: str, code: str, seconds: float) -> None:
        """See `RpcHooks.rpc_handled`."""

    def quota_refused(self, quota: str, tenant: str) -> None:
        """See `RpcHooks.quota_refused`."""

    def rpc_done(self, queue_seconds: float, encode_seconds: float) -> None:
        """See `RpcHooks.rpc_done`."""
