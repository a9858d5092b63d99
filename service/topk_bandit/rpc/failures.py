"""From errors to gRPC statuses: the one table, and the details that go with each code."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode

from topk_bandit.domain import errors
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from google.protobuf.message import Message

__all__ = [
    "ERROR_DOMAIN",
    "FAILURES",
    "Failure",
    "FailureReporter",
    "failure_of",
    "internal_failure",
    "place_failure",
    "reward_error",
    "status",
]

ERROR_DOMAIN = "topk-bandit"

# A message travels percent-encoded in the trailers and again inside the status: with the largest characters this stays
# below the 8 KiB that a peer accepts.
_MAX_MESSAGE_LENGTH = 200

_WORDS = ("reference", "quota")
"""What the reason's details say in words beside numbers."""

_TOGETHER = "see the message"
"""What is said of each of several fields; the message says the rest."""

_RULE = re.compile(r"(?<![\w.])rules\[[0-9]+\]")
"""A rule of a request, as a message names it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """What the caller of a failed call receives.

    Attributes
    ----------
    problem
        The message without the field's name.
    field
        Path of the bad field; empty when no field is to blame.
    fields
        Paths of fields that do not go together; the problem names them.
    reason
        A stable word for programs; empty when the code says it all.
    retry_after
        Seconds after which another try may help; None when it does not.
    resource
        What was not found.
    reference
        What the log has this failure under, when it is the service's own fault.
    numbers
        What the message counts, by name.
    quota, subject
        The quota that is used up, and whose it is; empty when none is.
    """

    code: StatusCode
    problem: str
    field: str = ""
    fields: tuple[str, ...] = ()
    reason: str = ""
    retry_after: float | None = None
    resource: str = ""
    reference: str = ""
    numbers: Mapping[str, int] = dataclass_field(default_factory=dict)
    quota: str = ""
    subject: str = ""

    @property
    def message(self) -> str:
        """What a person reads."""
        return _shorten(f"{self.field}: {self.problem}" if self.field else self.problem)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[: _MAX_MESSAGE_LENGTH - 3]}..."


# None: the service's own fault; a caller gets a reference and nothing else.
FAILURES: dict[type[errors.TopkBanditError], Callable[[Any], Failure] | None] = {
    errors.UnauthenticatedError: lambda error: Failure(StatusCode.UNAUTHENTICATED, str(error), reason=error.reason),
    errors.ForbiddenError: lambda error: Failure(StatusCode.PERMISSION_DENIED, str(error), reason=error.reason),
    errors.InvalidArgumentError: lambda error: Failure(StatusCode.INVALID_ARGUMENT, error.problem, field=error.field),
    errors.NotFoundError: lambda error: Failure(StatusCode.NOT_FOUND, str(error), resource=error.resource),
    errors.ConflictError: lambda error: Failure(StatusCode.ALREADY_EXISTS, str(error), reason=error.reason),
    errors.NotReadyError: lambda error: Failure(
        StatusCode.FAILED_PRECONDITION, str(error), fields=error.fields, reason=error.reason, numbers=error.numbers
    ),
    errors.ExhaustedError: lambda error: Failure(
        StatusCode.RESOURCE_EXHAUSTED, str(error), reason=error.reason, retry_after=error.retry_after
    ),
    errors.QuotaError: lambda error: Failure(
        StatusCode.RESOURCE_EXHAUSTED,
        str(error),
        reason=error.reason,
        retry_after=error.retry_after,
        numbers={"limit": error.limit, "used": error.used},
        quota=error.quota,
        subject=f"tenants/{error.tenant}",
    ),
    errors.UnavailableError: lambda error: Failure(StatusCode.UNAVAILABLE, str(error), retry_after=error.retry_after),
    errors.NotDurableError: lambda error: Failure(
        StatusCode.UNAVAILABLE, str(error), reason="NOT_DURABLE", retry_after=error.retry_after
    ),
    errors.NotPermittedError: lambda error: Failure(StatusCode.UNAVAILABLE, str(error), retry_after=error.retry_after),
    errors.NewerDataError: lambda error: Failure(StatusCode.UNAVAILABLE, str(error), retry_after=error.retry_after),
    errors.CorruptDataError: None,
    errors.ConfigurationError: None,
    errors.OutdatedError: None,
}


class FailureReporter:
    """Turns exceptions into failures, and logs those that are the service's own fault under a reference.

    Parameters
    ----------
    new_reference
        Makes a reference that is different each time.
    """

    def __init__(self, *, new_reference: Callable[[], str]) -> None:
        self._new_reference = new_reference

    def failure(self, error: BaseException, *, call: str) -> Failure:
        """Return the failure that the caller of `call` receives for `error`."""
        build = next((FAILURES[kind] for kind in type(error).__mro__ if kind in FAILURES), None)
        return self._own_fault(error, call) if build is None else build(error)

    def _own_fault(self, error: BaseException, call: str) -> Failure:
        reference = self._new_reference()
        if isinstance(error, errors.CorruptDataError):  # which says all there is to know
            _log.error("%s failed, reference %s: %s", call, reference, error)
        else:
            _log.error("%s failed, reference %s", call, reference, exc_info=error)
        return internal_failure(reference)


def internal_failure(reference: str) -> Failure:
    """Return what a caller receives for the service's own fault, which the log has under a reference."""
    problem = f"internal error; reference {reference}"
    return Failure(StatusCode.INTERNAL, problem, reason="INTERNAL_ERROR", reference=reference)


def status(failure: Failure) -> status_pb2.Status:
    """Return the status with its details, as google.rpc defines them."""
    result = status_pb2.Status(code=failure.code.value[0], message=failure.message)
    for detail in _details(failure):
        result.details.add().Pack(detail, deterministic=True)  # so that it is the same again
    return result


def _details(failure: Failure) -> Iterator[Message]:
    if failure.field:
        blamed = error_details_pb2.BadRequest.FieldViolation(field=failure.field, description=_shorten(failure.problem))
        yield error_details_pb2.BadRequest(field_violations=[blamed])
    if failure.fields:
        named = [
            error_details_pb2.BadRequest.FieldViolation(field=one, description=_TOGETHER) for one in failure.fields
        ]
        yield error_details_pb2.BadRequest(field_violations=named)
    if failure.reason:
        metadata = {name: str(number) for name, number in failure.numbers.items()}
        metadata |= {name: word for name in _WORDS if (word := getattr(failure, name))}
        yield error_details_pb2.ErrorInfo(reason=failure.reason, domain=ERROR_DOMAIN, metadata=metadata)
    if failure.quota:
        violation = error_details_pb2.QuotaFailure.Violation(subject=failure.subject, description=failure.message)
        yield error_details_pb2.QuotaFailure(violations=[violation])
    if failure.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(round(failure.retry_after * 1e9))
        yield error_details_pb2.RetryInfo(retry_delay=delay)
    if failure.resource:
        yield error_details_pb2.ResourceInfo(resource_name=_shorten(failure.resource))


def failure_of(received: status_pb2.Status) -> Failure:
    """Return the failure whose status another worker sent: its status is the same again."""
    code = next((code for code in StatusCode if code.value[0] == received.code), StatusCode.UNKNOWN)
    failure = Failure(code, received.message)
    for detail in received.details:
        for read in _READERS:
            if detail.Unpack(message := read.message()):
                failure = replace(failure, **read.parts(message))
    return failure


class _Reader(NamedTuple):
    """A kind of detail, and which parts of a failure it has."""

    message: type[Message]
    parts: Callable[[Any], dict[str, Any]]


def _parts_of_field(detail: error_details_pb2.BadRequest) -> dict[str, Any]:
    blamed = detail.field_violations[0]
    if blamed.description == _TOGETHER:
        return {"fields": tuple(one.field for one in detail.field_violations)}
    return {"field": blamed.field, "problem": blamed.description}


def _parts_of_reason(detail: error_details_pb2.ErrorInfo) -> dict[str, Any]:
    words = {name: detail.metadata[name] for name in _WORDS if name in detail.metadata}
    numbers = {name: int(text) for name, text in detail.metadata.items() if name not in words}
    return {"reason": detail.reason, "numbers": numbers, **words}


_READERS = (
    _Reader(error_details_pb2.BadRequest, _parts_of_field),
    _Reader(error_details_pb2.ErrorInfo, _parts_of_reason),
    _Reader(error_details_pb2.QuotaFailure, lambda detail: {"subject": detail.violations[0].subject}),
    _Reader(error_details_pb2.RetryInfo, lambda detail: {"retry_after": detail.retry_delay.ToNanoseconds() / 1e9}),
    _Reader(error_details_pb2.ResourceInfo, lambda detail: {"resource": detail.resource_name}),
)


def place_failure(failure: Failure, path: str, *, added_rule: str = "") -> Failure:
    """Return the failure of one entry of a call, with the paths of fields as the caller wrote them.

    Parameters
    ----------
    path
        The entry's.
    added_rule
        The field of a rule that the caller did not write, but that keeps a page from showing an item twice.
    """

    def placed(field: str) -> str:
        if field == added_rule:
            return path
        return field if field.startswith("bandit.") else f"{path}.{field}"

    def named(found: re.Match[str]) -> str:
        return "what the page shows already" if found[0] == added_rule else placed(found[0])

    return replace(
        failure,
        field=placed(failure.field) if failure.field else "",
        fields=tuple(map(placed, failure.fields)),
        problem=_RULE.sub(named, failure.problem) if failure.fields else failure.problem,
    )


def reward_error(failure: Failure) -> pb.RewardError:
    """Return the failure of one entry of a batch."""
    field = failure.field or next(iter(failure.fields), "")
    return pb.RewardError(code=failure.code.value[0], message=failure.message, field=field, reason=failure.reason)
