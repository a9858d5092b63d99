"""The quotas file: the tenants for whom other quotas hold than the settings have, each a table of it."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.ids import ID, ID_RULE
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.quotas import UNLIMITED, Quota
from topk_bandit.rpc.regular_files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_quotas"]

_NO_LIMIT = "none"


def read_quotas(path: Path) -> dict[str, dict[Quota, int]]:
    """Return the quotas in a file, by tenant; `UNLIMITED` stands for ``"none"``.

    Raises
    ------
    ConfigurationError
        It can't be read, or has something else; the message says where.
    """
    try:
        tables = tomllib.loads(read_regular(path).decode("utf-8-sig"))
        return {tenant: _quotas(tenant, table) for tenant, table in tables.items()}
    except OSError as error:
        raise ConfigurationError(f"quotas_file: {path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"quotas_file: {path} is not TOML: {error}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"quotas_file: {path}: {error}") from None


def _quotas(tenant: str, table: Any) -> dict[Quota, int]:  # noqa: ANN401 - whatever TOML has
    if not ID.fullmatch(tenant):
        raise ConfigurationError(f"{tenant!r} is no tenant: {ID_RULE}")
    if not isinstance(table, dict):
        raise ConfigurationError(f"{tenant} is no table; write [{tenant}], and its quotas below")
    return {_parse_quota(tenant, name, value): _limit(f"{tenant}.{name}", value) for name, value in table.items()}


def _parse_quota(tenant: str, name: str, value: object) -> Quota:
    if name not in list(Quota):
        nearest = find_nearest(name, Quota)
        hint = f"; did you mean {nearest}?" if nearest else ""
        if isinstance(value, dict):
            hint = f'; quote a tenant with dots: ["{tenant}.{name}"]'
        raise ConfigurationError(f"{tenant}.{name} is none of {', '.join(Quota)}{hint}")
    return Quota(name)


def _limit(where: str, value: Any) -> int:  # noqa: ANN401
    if value == _NO_LIMIT:
        return UNLIMITED
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < UNLIMITED:
        raise ConfigurationError(f'{where} is neither a whole number from 1 on nor "{_NO_LIMIT}"')
    return value
