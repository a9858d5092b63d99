"""The real service in the process of a shop's tests: `local_service`. It needs no port and no Redis."""

from topk_bandit.testing.local_service import AsyncLocalClient, LocalClient, LocalOptions, LocalService, local_service

__all__ = ["AsyncLocalClient", "LocalClient", "LocalOptions", "LocalService", "local_service"]
