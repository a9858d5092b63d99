"""What a storefront imports: ``Client``, its asynchronous twin ``AsyncClient``, their values and their errors."""

from topk_bandit.client.asynchronous import AsyncClient
from topk_bandit.client.errors import (
    AlreadyExists,
    ClientError,
    DeadlineExceeded,
    ErrorDetails,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unexpected,
)
from topk_bandit.client.retries import RetryPolicy
from topk_bandit.client.synchronous import Client
from topk_bandit.client.values import (
    UNCHANGED,
    Bandit,
    BanditStats,
    BatchOutcome,
    Item,
    Kernel,
    Recommendation,
    RewardOutcome,
    Tls,
    Unchanged,
)

__all__ = [
    "UNCHANGED",
    "AlreadyExists",
    "AsyncClient",
    "Bandit",
    "BanditStats",
    "BatchOutcome",
    "Client",
    "ClientError",
    "DeadlineExceeded",
    "ErrorDetails",
    "Internal",
    "InvalidArgument",
    "Item",
    "Kernel",
    "NotFound",
    "Recommendation",
    "ResourceExhausted",
    "RetryPolicy",
    "RewardOutcome",
    "Tls",
    "Unavailable",
    "Unchanged",
    "Unexpected",
]
