"""Who is let in, as the settings have it, before anything is started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.rpc.certificates import write_pair
from tests.rpc.keys import ring

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.listeners import check_listeners, find_exposed_listeners
from topk_bandit.process.settings import Settings
from topk_bandit.rpc.keys import print_keys

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def locked(tmp_path: Path) -> dict[str, Any]:
    """Return settings of a service with keys and TLS."""
    keys = tmp_path / "keys.json"
    keys.write_text(print_keys(ring()))
    certificate, key = write_pair(tmp_path)
    return {"keys_file": keys, "tls_certificate": certificate, "tls_private_key": key}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.7.6", "[::1]", "localhost"])
def test_on_this_machine_nothing_is_asked_for(host: str) -> None:
    settings = Settings(listen=f"{host}:1", http_listen=f"{host}:2")  # type: ignore[arg-type]
    check_listeners(settings)
    assert find_exposed_listeners(settings) == []


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "[::]", "10.0.0.1", "[2001:db8::1]", "[::ffff:10.0.0.1]", "shop.example", "localhost.example"]
)
@pytest.mark.parametrize("setting", ["listen", "http_listen", "console_listen"])
def test_for_other_machines_keys_and_tls_are_needed(locked: dict[str, Any], host: str, setting: str) -> None:
    reached = {setting: f"{host}:1"}
    check_listeners(Settings(**reached, **locked))  # type: ignore[arg-type]
    for missing, names in (
        (["keys_file"], "keys_file"),
        (["tls_certificate", "tls_private_key"], "tls_certificate"),
        (list(locked), "keys_file and tls_certificate"),
    ):
        settings = Settings(**reached, **{name: value for name, value in locked.items() if name not in missing})  # type: ignore[arg-type]
        problem = f"{setting}: {host}:1 can be reached from other machines, which needs {names}"
        assert find_exposed_listeners(settings) == [problem]
        with pytest.raises(ConfigurationError) as refused:
            check_listeners(settings)
        assert str(refused.value) == f"{problem}; or say insecure"


def test_who_says_insecure_is_let_through_and_warned() -> None:
    settings = Settings(listen="0.0.0.0:1", http_listen="[::]:2", insecure=True)  # type: ignore[arg-type]
    check_listeners(settings)
    assert [problem.partition(":")[0] for problem in find_exposed_listeners(settings)] == ["listen", "http_listen"]


def test_a_listener_that_is_off_needs_nothing() -> None:
    check_listeners(Settings(http_listen=None))


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is not JSON"), (b"\xff", "is not UTF-8"), (b"[]", "is not "), (b'{"keys": [{}]}', r"keys\[0\] must have")],
)
def test_a_bad_keys_file_is_named(locked: dict[str, Any], content: bytes, problem: str) -> None:
    locked["keys_file"].write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"^keys_file: {locked['keys_file']}: {problem}"):
        check_listeners(Settings(**locked))


def test_a_keys_file_that_cannot_be_read_is_named(locked: dict[str, Any]) -> None:
    settings = Settings(**locked)
    locked["keys_file"].unlink()
    with pytest.raises(ConfigurationError, match=f"^keys_file: {locked['keys_file']} can't be read: No such file"):
        check_listeners(settings)


@pytest.mark.parametrize("spoiled", ["tls_certificate", "tls_private_key"])
def test_a_bad_certificate_is_named(locked: dict[str, Any], tmp_path: Path, spoiled: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for content in (b"", write_pair(other)[spoiled == "tls_private_key"].read_bytes()):
        locked[spoiled].write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"^tls_certificate: .* can't be used"):
            check_listeners(Settings(**locked))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_private_key_that_cannot_be_read_is_named(locked: dict[str, Any]) -> None:
    settings = Settings(**locked)
    locked["tls_private_key"].chmod(0)
    with pytest.raises(ConfigurationError, match=r"^tls_certificate: .* can't be used: Permission denied"):
        check_listeners(settings)
