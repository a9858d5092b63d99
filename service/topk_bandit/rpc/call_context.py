"""What services need of a call's context, for servers that are not gRPC's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.rpc.status_pb2 import Status

from topk_bandit.rpc.identities import auth_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.rpc.identities import AuthContext, ClientCertificate

    Metadata = tuple[tuple[str, str], ...]

__all__ = ["CallContext"]

_DETAILS = "grpc-status-details-bin"


class CallContext:
    """A call's context, as `grpc.aio.ServicerContext` has it.

    Parameters
    ----------
    deadline
        When the caller stops waiting, by `clock`; None for never.
    metadata
        The headers with the caller's credentials.
    certificate
        What the handshake reported of the caller.

    Attributes
    ----------
    status
        What the call was aborted with; OK before.
    """

    def __init__(
        self,
        deadline: float | None,
        metadata: Metadata = (),
        certificate: ClientCertificate = None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._deadline = deadline
        self._certificate = certificate
        self._metadata = metadata
        self._clock = clock
        self.status = Status()

    def invocation_metadata(self) -> Metadata:
        """Return the headers with the caller's credentials."""
        return self._metadata

    def set_trailing_metadata(self, _metadata: Metadata) -> None:
        """Ignore the call's ids: the server sends them with each answer, even where the guard was not called."""

    def auth_context(self) -> AuthContext:
        """Return what the handshake reported of the caller."""
        return auth_context(self._certificate)

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - self._clock())

    def code(self) -> grpc.StatusCode:
        """Return the code that the call was aborted with."""
        return next(code for code in grpc.StatusCode if code.value[0] == self.status.code)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, Any], ...] = ()
    ) -> NoReturn:
        """End the call with an error."""
        packed = dict(trailing_metadata).get(_DETAILS)
        self.status = Status(code=code.value[0], message=details) if packed is None else Status.FromString(packed)
        raise grpc.aio.AbortError
