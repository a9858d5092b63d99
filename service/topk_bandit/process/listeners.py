"""Checks before a service listens: that strangers can't come in, and that all files are good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.hosts import is_loopback
from topk_bandit.domain.quotas import CALL_QUOTAS
from topk_bandit.process.identities_file import read_identities
from topk_bandit.process.keys_file import read_keys
from topk_bandit.process.quotas_file import read_quotas
from topk_bandit.rpc.tls import ServerCertificate

if TYPE_CHECKING:
    from topk_bandit.domain.quotas import Quota
    from topk_bandit.process.settings import Settings

__all__ = ["check_listeners", "find_exposed_listeners", "read_certificate", "read_own_quotas"]


def check_listeners(settings: Settings) -> None:
    """Refuse to serve where strangers may call, or with keys, identities, quotas or certificates that can't be used.

    Raises
    ------
    ConfigurationError
        The message names the setting.
    """
    if not settings.insecure and (problems := find_exposed_listeners(settings)):
        raise ConfigurationError(f"{problems[0]}; or say insecure")
    if settings.keys_file is not None:
        read_keys(settings.keys_file)
    if settings.client_identities is not None:
        read_identities(settings.client_identities)
    read_own_quotas(settings)
    read_certificate(settings)


def find_exposed_listeners(settings: Settings) -> list[str]:
    """Return a problem for each listener at which strangers on other machines may call, or read what is sent."""
    wanted = ("keys_file", settings.knows_callers), ("tls_certificate", settings.tls_certificate is not None)
    missing = [name for name, is_there in wanted if not is_there]
    listeners = {
        "listen": settings.listen,
        "http_listen": settings.http_listen,
        "console_listen": settings.console_listen,
    }
    return [
        f"{name}: {address} can be reached from other machines, which needs {' and '.join(missing)}"
        for name, address in listeners.items()
        if missing and address is not None and not is_loopback(str(address))
    ]


def read_own_quotas(settings: Settings) -> dict[str, dict[Quota, int]]:
    """Return the quotas of tenants that have their own, by tenant.

    Raises
    ------
    ConfigurationError
        They can't be used.
    """
    if settings.quotas_file is None:
        return {}
    of_tenants = read_quotas(settings.quotas_file)
    for tenant, quotas in of_tenants.items():
        if not settings.knows_callers and (unknown := quotas.keys() & set(CALL_QUOTAS)):
            names = ", ".join(sorted(unknown))
            raise ConfigurationError(
                f"quotas_file: {tenant}: {names} needs keys_file or client_identities, to know whose calls they are"
            )
    return of_tenants


def read_certificate(settings: Settings) -> ServerCertificate | None:
    """Return the certificate of the listeners; None for plain text.

    Raises
    ------
    ConfigurationError
        It can't be used.
    """
    if settings.tls_certificate is None or settings.tls_private_key is None:
        return None
    return ServerCertificate(settings.tls_certificate, settings.tls_private_key, settings.tls_client_ca)
