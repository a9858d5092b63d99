"""What a call can raise, as one tree.

::

    ClientError
    ├── Unauthenticated      the client has no key, or a wrong one
    ├── PermissionDenied     the client's key is not for this call, or not for this tenant
    ├── InvalidArgument      a field holds something that can't be used
    ├── NotFound             no such bandit, item, recommendation, study or question (or another tenant's)
    ├── AlreadyExists        an id is used again with another payload
    ├── FailedPrecondition   something else must happen first, such as a study's design
    ├── Cancelled            what was waited for was cancelled
    ├── ResourceExhausted    a quota or the calls in flight are used up, or a message is too large
    ├── Unavailable          the service or its store can't be reached, or the service shuts down
    ├── DeadlineExceeded     the call's time was up; it may have had its effect
    ├── Internal             the service's own fault; quote the reference to its operators
    └── Unexpected           any other status, from a proxy for example
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topk_bandit.v1 import recommender_service_pb2 as pb

__all__ = [
    "CLOSED_CHANNEL",
    "AlreadyExists",
    "Cancelled",
    "ClientError",
    "DeadlineExceeded",
    "ErrorDetails",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "PermissionDenied",
    "ResourceExhausted",
    "Unauthenticated",
    "Unavailable",
    "Unexpected",
    "client_closed",
    "error_of_call",
    "error_of_entry",
    "error_of_status",
    "invalid_argument",
    "is_final",
    "no_answer",
]

_STATUS_KEY = "grpc-status-details-bin"

# What gRPC says of a call whose channel was closed on this side.
_CLOSED_HERE = "Channel closed!"

CLOSED_CHANNEL: tuple[type[Exception], ...] = (ValueError, grpc.aio.UsageError)
"""What gRPC raises for a call of a channel that was closed before."""

# What gRPC repeats from the operating system when a host, or a socket in the file system, has no listener.
_NO_LISTENER = ("Connection refused", "No such file or directory")


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """What the service said about a failure.

    Attributes
    ----------
    code
        Name of the gRPC status code.
    field, reason, reference
        Empty where they do not apply.
    retry_after
        Seconds after which another try may help; None when the service did not say.
    numbers
        What the message counts, by name.
    quota
        The quota that is used up; empty when none is.
    """

    code: str
    message: str
    field: str = ""
    reason: str = ""
    reference: str = ""
    retry_after: float | None = None
    numbers: Mapping[str, int] = dataclass_field(default_factory=dict)
    quota: str = ""


class ClientError(Exception):
    """The root of what a call raises."""

    def __init__(self, details: ErrorDetails) -> None:
        super().__init__(details)
        self.details = details

    def __str__(self) -> str:
        return f"{self.details.code}: {self.details.message}"


class Unauthenticated(ClientError):  # noqa: N818, the tree has the names of the gRPC codes
    """The client has no key, or one that the service does not know."""


class PermissionDenied(ClientError):  # noqa: N818
    """The client's key is not for this call, or not for this tenant; the message names what is needed."""

    @property
    def reason(self) -> str:
        """A stable word: ``SCOPE_NEEDED`` or ``TENANT_NEEDED``."""
        return self.details.reason


class InvalidArgument(ClientError):  # noqa: N818
    """A field holds something that can't be used."""

    @property
    def field(self) -> str:
        """Path of the field as the wire calls it, for example ``context[3]``."""
        return self.details.field

    @property
    def problem(self) -> str:
        """What is wrong with it, in a sentence without the field's path."""
        return self.details.message.removeprefix(f"{self.field}: ")


class NotFound(ClientError):  # noqa: N818
    """There is no such bandit, item, recommendation, study or question, or it belongs to another tenant."""


class AlreadyExists(ClientError):  # noqa: N818
    """An id is used again with another payload."""

    @property
    def reason(self) -> str:
        """A stable word, for example ``REWARD_EXISTS``."""
        return self.details.reason


class FailedPrecondition(ClientError):  # noqa: N818
    """Something else must happen first."""

    @property
    def reason(self) -> str:
        """A stable word, for example ``DESIGN_UNFINISHED``."""
        return self.details.reason

    @property
    def numbers(self) -> Mapping[str, int]:
        """What the message counts, for example ``items_left`` and ``slate_size`` of ``TOO_FEW_ITEMS``."""
        return self.details.numbers


class Cancelled(ClientError):  # noqa: N818
    """What was waited for was cancelled, by whomever."""


class ResourceExhausted(ClientError):  # noqa: N818
    """A quota or the calls in flight are used up, or a message is too large."""

    @property
    def reason(self) -> str:
        """A stable word, for example ``ITEM_CAPACITY``; empty when gRPC itself refused the message."""
        return self.details.reason

    @property
    def quota(self) -> str:
        """The tenant's quota that is used up, for example ``calls_per_second``; empty when none is."""
        return self.details.quota

    @property
    def numbers(self) -> Mapping[str, int]:
        """For a quota its ``limit``, and how much is ``used``."""
        return self.details.numbers

    @property
    def retry_after(self) -> float | None:
        """Seconds after which another try may help; None when it won't."""
        return self.details.retry_after


class Unavailable(ClientError):  # noqa: N818
    """The service or its store can't be reached, or the service shuts down."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which another try may help; None when the service itself was not reached."""
        return self.details.retry_after


class DeadlineExceeded(ClientError):  # noqa: N818
    """The call's time was up; whether it had its effect is not known."""


class Internal(ClientError):  # noqa: N818
    """The service's own fault."""

    @property
    def reference(self) -> str:
        """What the service's log has this failure under."""
        return self.details.reference


class Unexpected(ClientError):  # noqa: N818
    """A status that the service itself never sends."""


_KINDS: dict[str, type[ClientError]] = {
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "FAILED_PRECONDITION": FailedPrecondition,
    "CANCELLED": Cancelled,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "INTERNAL": Internal,
}


def _error(details: ErrorDetails) -> ClientError:
    return _KINDS.get(details.code, Unexpected)(details)


def invalid_argument(field: str, problem: str) -> InvalidArgument:
    """Return the error for a field that the client itself refuses."""
    return InvalidArgument(ErrorDetails("INVALID_ARGUMENT", f"{field}: {problem}", field=field))


def no_answer(problem: str) -> Unexpected:
    """Return the error for a message that the service never sends."""
    return Unexpected(ErrorDetails("UNKNOWN", f"the answer {problem}: it is none of the service's"))


_FINAL = (Unauthenticated, PermissionDenied, InvalidArgument, NotFound, AlreadyExists, FailedPrecondition)


def is_final(error: ClientError) -> bool:
    """Return whether only another call, or another key, can do better: the service has answered, and said no."""
    if isinstance(error, ResourceExhausted):
        return error.retry_after is None
    return isinstance(error, _FINAL)


def client_closed() -> Cancelled:
    """Return the error of a call of a client that was closed."""
    return Cancelled(ErrorDetails("CANCELLED", "the client was closed"))


def error_of_call(call: Any, *, target: str) -> ClientError:  # noqa: ANN401, the two kinds of call share no such type
    """Return the error for a failed call to `target`: a `grpc.RpcError` of a synchronous or an asynchronous channel.

    It says all that the gRPC error says, so that it can be raised without it.
    """
    try:
        found = _find_details(call.trailing_metadata() or ())
    except DecodeError:  # not the service's own doing: the code still says all that is known
        found = {}
    code, message = call.code(), call.details() or "no message"
    if code is grpc.StatusCode.CANCELLED and _CLOSED_HERE not in message:
        # gRPC's own answer to calls that reach a server while it ends: the service itself cancels no call.
        code, message = grpc.StatusCode.UNAVAILABLE, f"the service ended while it was called: {message}"
    if code is grpc.StatusCode.UNAVAILABLE and any(words in message for words in _NO_LISTENER):
        message = f"nothing listens at {target}: start the service with `make serve` or `topk-bandit serve`"
    return _error(ErrorDetails(code.name, message, **found))


def _find_details(metadata: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in metadata:
        if key == _STATUS_KEY:
            found |= _from_details(status_pb2.Status.FromString(value))
    return found


def _from_details(status: Any) -> dict[str, Any]:  # noqa: ANN401, google.rpc.status_pb2.Status
    found: dict[str, Any] = {}
    for packed in status.details:
        found |= _from_detail(packed)
    return found


def _from_detail(packed: Any) -> dict[str, Any]:  # noqa: ANN401, google.protobuf.any_pb2.Any
    bad_request, info, retry = (
        error_details_pb2.BadRequest(),
        error_details_pb2.ErrorInfo(),
        error_details_pb2.RetryInfo(),
    )
    if packed.Unpack(bad_request) and bad_request.field_violations:
        return {"field": bad_request.field_violations[0].field}
    if packed.Unpack(info):
        numbers = {name: int(value) for name, value in info.metadata.items() if value.isdecimal()}
        words = {name: info.metadata.get(name, "") for name in ("reference", "quota")}
        return {"reason": info.reason, "numbers": numbers, **words}
    if packed.Unpack(retry):
        return {"retry_after": retry.retry_delay.ToNanoseconds() / 1e9}
    return {}


def error_of_entry(error: pb.RewardError) -> ClientError:
    """Return the error for one refused entry of a batch."""
    return _error(ErrorDetails(_code(error.code), error.message, field=error.field, reason=error.reason))


def error_of_status(status: Any) -> ClientError:  # noqa: ANN401, google.rpc.status_pb2.Status
    """Return the error that a message holds as a status."""
    return _error(ErrorDetails(_code(status.code), status.message, **_from_details(status)))


def _code(number: int) -> str:
    known = number in code_pb2.Code.values()
    return str(code_pb2.Code.Name(number)) if known else grpc.StatusCode.UNKNOWN.name
