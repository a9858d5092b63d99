"""What can go wrong, as one tree.

::

    TopkBanditError
    ├── UnauthenticatedError     the caller has no key, or a wrong one
    ├── ForbiddenError           the caller's key is not for this
    ├── InvalidArgumentError     a named field holds something that can't be used
    ├── NotFoundError            no such tenant, bandit, item, recommendation or study (or another tenant's)
    ├── ConflictError            an id is used again with another payload
    ├── NotReadyError            something else must happen first
    ├── ExhaustedError           the calls in flight, the store's memory or something else that is limited is used up
    │   └── QuotaError           a tenant has used up a quota
    ├── UnavailableError         the store is away; nothing is lost or half done, but it may be done
    │   ├── NotDurableError      written, but not as durably as acknowledged writes are: the same call again finds out
    │   ├── NotPermittedError    the store's user may not do what is asked of it
    │   └── NewerDataError       stored bytes are of a newer program, which can read them
    ├── CorruptDataError         stored bytes do not verify
    └── ConfigurationError       the service can't run on what it was given
        └── OutdatedError        an upgrade was finalized, which this program is the version before of

Every call that raises one of these has changed nothing, but for UnavailableError unless it says that nothing was sent.
``rpc/failures.py`` owns the one table from this tree to gRPC statuses, and a test shows that the table is total.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topk_bandit.domain.quotas import Quota

__all__ = [
    "ConfigurationError",
    "ConflictError",
    "CorruptDataError",
    "ExhaustedError",
    "ForbiddenError",
    "InvalidArgumentError",
    "NewerDataError",
    "NotDurableError",
    "NotFoundError",
    "NotPermittedError",
    "NotReadyError",
    "OutdatedError",
    "QuotaError",
    "TopkBanditError",
    "UnauthenticatedError",
    "UnavailableError",
    "errors_below",
]


class TopkBanditError(Exception):
    """The root of everything that this package raises on purpose."""


class UnauthenticatedError(TopkBanditError):
    """The caller has no key, or one that is not known: the text is the same either way.

    Parameters
    ----------
    names
        Those in the caller's certificate, if it showed one and no key.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.names = tuple(names)

    @property
    def reason(self) -> str:
        """Which of the two is not known."""
        return "IDENTITY_NEEDED" if self.names else "KEY_NEEDED"

    def __str__(self) -> str:
        if self.names:
            return (
                f"show a key, or a certificate with just one name that the service knows, not {', '.join(self.names)}"
            )
        return "a key that the service knows is needed, as authorization: Bearer KEY"


class ForbiddenError(TopkBanditError):
    """The caller's key is not for this; the message names the scope or the tenant that is needed.

    Parameters
    ----------
    reason
        A stable UPPER_SNAKE_CASE word that a program can switch on.
    message
        What is needed, for a person.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class InvalidArgumentError(TopkBanditError):
    """A named field holds something that can't be used.

    Parameters
    ----------
    field
        Path of the field as the caller wrote it, for example ``context[3]``.
    problem
        What is wrong with it, in a sentence without the field's name.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"

    def below(self, path: str) -> InvalidArgumentError:
        """Return the error for this field of what stands at `path`."""
        return InvalidArgumentError(f"{path}.{self.field}", self.problem)


@contextmanager
def errors_below(path: str) -> Iterator[None]:
    """Raise the `InvalidArgumentError` of the block for a field of what stands at `path`."""
    try:
        yield
    except InvalidArgumentError as error:
        raise error.below(path) from None


class NotFoundError(TopkBanditError):
    """There is no such resource, or it belongs to another tenant: the text is the same either way."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"{self.resource} not found"


class ConflictError(TopkBanditError):
    """An id was used before with another payload.

    Parameters
    ----------
    reason
        A stable UPPER_SNAKE_CASE word that a program can switch on.
    message
        What clashed, for a person.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class NotReadyError(TopkBanditError):
    """Something else must happen before this can be done, such as a study's design.

    Parameters
    ----------
    reason
        A stable UPPER_SNAKE_CASE word that a program can switch on.
    message
        What must happen, for a person.
    fields
        Paths of the caller's fields that do not go together, if that is why.
    numbers
        What the message counts, by name, for a program.
    """

    def __init__(self, reason: str, message: str, *, fields: tuple[str, ...] = (), **numbers: int) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.fields = fields
        self.numbers = numbers

    def __str__(self) -> str:
        return self.message


class ExhaustedError(TopkBanditError):
    """Something limited is used up; trying again after `retry_after` seconds may help, with None it does not."""

    def __init__(self, reason: str, message: str, *, retry_after: float | None = 1.0) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


class QuotaError(ExhaustedError):
    """A tenant has used up a quota.

    Parameters
    ----------
    tenant
        Whose quota it is.
    limit, used
        How much the tenant may have, and how much it has.
    retry_after
        As for `ExhaustedError`: None where the tenant has to give something up first.
    """

    def __init__(self, quota: Quota, tenant: str, *, limit: int, used: int, retry_after: float | None = None) -> None:
        message = f"the quota {quota} of tenants/{tenant} is used up: {used} of {limit}"
        super().__init__(quota.reason, message, retry_after=retry_after)
        self.quota = quota
        self.tenant = tenant
        self.limit = limit
        self.used = used

    def __reduce__(self) -> tuple[Callable[[], QuotaError], tuple[()]]:
        """Return how another process makes it anew: by name what exceptions would keep by place."""
        numbers: dict[str, Any] = {"limit": self.limit, "used": self.used, "retry_after": self.retry_after}
        return partial(QuotaError, self.quota, self.tenant, **numbers), ()


class UnavailableError(TopkBanditError):
    """The store can't be reached now; trying again after `retry_after` seconds may help.

    Parameters
    ----------
    nothing_sent
        Whether it is certain that nothing was done, because nothing was sent. Else the outcome is unknown: the reply
        may be what is missing.
    """

    def __init__(self, message: str, *, retry_after: float = 0.5, nothing_sent: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.nothing_sent = nothing_sent


class NotDurableError(UnavailableError):
    """The store wrote it, but not in time to where an acknowledged write must be; a failure may still undo it.

    The same call again waits anew, and is answered as a repeated one.
    """


class NotPermittedError(UnavailableError):
    """The store is there, and its user may not do what is asked of it: somebody has to let it."""


class NewerDataError(UnavailableError):
    """Stored bytes are of a data version that only a newer program reads: they are not damaged, and it has them."""


class CorruptDataError(TopkBanditError):
    """Stored bytes do not verify: wrong schema, wrong checksum, or cut short."""


class ConfigurationError(TopkBanditError):
    """The service can't run on what it was given; the message says what to change."""


class OutdatedError(ConfigurationError):
    """An upgrade was finalized, and this program is older: no worker of it can serve this store any more."""
