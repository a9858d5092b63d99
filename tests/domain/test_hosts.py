"""Names of this machine by its loopback."""

from __future__ import annotations

import pytest

from topk_bandit.domain.hosts import is_loopback


@pytest.mark.parametrize("host", ["localhost", "Localhost.:80", "127.0.0.1", "127.1.2.3:9", "[::1]", "[::1]:80", "::1"])
def test_loopback_has_these_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":",
        "evil.example",
        "localhost.evil.example",
        "a.localhost",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[::2]:80",
        "localhost:port",
        "localhost:1:2",
        "local host",
        "127.1",
        "2130706433",
        "[localhost]",
        "0.0.0.0",
    ],
)
def test_others_are_none(host: str) -> None:
    assert not is_loopback(host)
