"""The small HTTP server that shows the metrics and answers probes.

Metrics are in the format that the scraper asks for: OpenMetrics, with exemplars, or Prometheus's text format. It
answers ``/metrics``, ``/livez`` and ``/readyz``, with GET and HEAD, from any number of threads. A scraper that hangs
holds up no other and no shutdown. A failure is an answer 500 and a record in the log; it never says what failed.
"""

from __future__ import annotations

import logging
import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import TYPE_CHECKING, Self, TypeAlias

from prometheus_client.exposition import choose_encoder

from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector

__all__ = ["MetricsServer"]

_logger = logging.getLogger(__name__)

_OPENMETRICS = "application/openmetrics-text"
_Render: TypeAlias = "Callable[[Callable[[Collector], bytes]], bytes]"


def _choose_format(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the encoder that a scraper asks for, and the type of what it makes.

    The library chooses too, but raises on versions that are none, and takes on any that is newer than what it writes.
    """
    offers = [[word.strip() for word in offer.split(";")] for offer in accept.lower().split(",")]
    versions = [
        {word for word in words if word.startswith("version=")} for name, *words in offers if name == _OPENMETRICS
    ]
    return choose_encoder(_OPENMETRICS if any(one <= {"version=1.0.0"} for one in versions) else "")


class _HttpServer(ThreadingHTTPServer):
    """Binds without looking a name up, and keeps a scraper's broken connection out of the log."""

    def __init__(self, address: tuple[str, int], *, render: _Render, ready: Callable[[], bool]) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self.render = render
        self.ready = ready
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        _logger.debug("connection of a scraper broke", exc_info=True)  # noqa: LOG014


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    timeout = 10.0

    def do_GET(self) -> None:
        status, content_type, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        path = self.path.partition("?")[0]
        try:
            if path == "/metrics":
                encode, content_type = _choose_format(self.headers.get("Accept", ""))
                return HTTPStatus.OK, content_type, self.server.render(encode)
            return self._probe(path)
        except Exception:
            _logger.exception("answering %s failed", path)
            return self._phrase(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _probe(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/livez":
            return self._phrase(HTTPStatus.OK)
        if path == "/readyz":
            return self._phrase(HTTPStatus.OK if self.server.ready() else HTTPStatus.SERVICE_UNAVAILABLE)
        return self._phrase(HTTPStatus.NOT_FOUND)

    def _phrase(self, status: HTTPStatus) -> tuple[HTTPStatus, str, bytes]:
        return status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log no request."""


class MetricsServer:
    """Answers ``/metrics``, ``/livez`` (200 while it runs) and ``/readyz`` (200 or 503), from `start` to `stop`.

    Parameters
    ----------
    port
        0 for any free one.
    host
        Address of this machine to listen on.
    render
        Returns the metrics, encoded by the function that it is given.
    ready
        Returns whether the service takes calls. Both are called from many threads.

    Attributes
    ----------
    port
        The port that it listens on.

    Raises
    ------
    ConfigurationError
        It can't listen there.
    """

    def __init__(self, port: int, *, host: str, render: _Render, ready: Callable[[], bool]) -> None:
        try:
            self._server = _HttpServer((host, port), render=render, ready=ready)
        except OSError as error:
            raise ConfigurationError(f"metrics can't be served on {host}:{port}: {error.strerror}") from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, and close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
