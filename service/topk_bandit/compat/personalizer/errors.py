"""Errors in the shape that Personalizer's clients read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_bandit.client import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from topk_bandit.client.errors import DeadlineExceeded

if TYPE_CHECKING:
    from topk_bandit.client import ClientError

__all__ = ["PersonalizerError", "bad_request", "error_of", "not_found"]

_STATUSES: tuple[tuple[type[ClientError], int, str], ...] = (
    (InvalidArgument, 400, "BadRequest"),
    (Unauthenticated, 401, "401"),
    (PermissionDenied, 403, "403"),
    (NotFound, 404, "ResourceNotFound"),
    (AlreadyExists, 409, "OperationNotAllowed"),
    (FailedPrecondition, 409, "OperationNotAllowed"),
    (ResourceExhausted, 429, "429"),
    (Unavailable, 503, "ServiceUnavailable"),
    (DeadlineExceeded, 503, "ServiceUnavailable"),
)


class PersonalizerError(Exception):
    """A call that is refused.

    Parameters
    ----------
    status
        Of HTTP.
    code
        Personalizer's word for it, where it has one.
    target
        The field that is to blame; empty for none.
    retry_after
        Seconds after which another try may help; None for no such promise.
    """

    def __init__(
        self, status: int, code: str, message: str, *, target: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.target, self.retry_after = target, retry_after

    def body(self) -> dict[str, Any]:
        """Return what is answered."""
        error = {"code": self.code, "message": self.message}
        return {"error": error | {"target": self.target} if self.target else error}


def bad_request(target: str, problem: str, *, code: str = "BadRequest") -> PersonalizerError:
    """Return the error for a field that can't be used."""
    return PersonalizerError(400, code, f"{target}: {problem}", target=target)


def not_found(message: str) -> PersonalizerError:
    """Return the error for what is not there."""
    return PersonalizerError(404, "ResourceNotFound", message)


def error_of(error: ClientError) -> PersonalizerError:
    """Return the answer to a call that the service refused."""
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            details = error.details
            return PersonalizerError(
                status, code, details.message, target=details.field, retry_after=details.retry_after
            )
    return PersonalizerError(500, "InternalServerError", str(error))
