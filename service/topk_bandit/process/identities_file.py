"""The file of identities: the names in certificates of callers, and for whom each calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc.identities import parse_identities
from topk_bandit.rpc.regular_files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

    from topk_bandit.rpc.identities import Identities

__all__ = ["read_identities"]


def read_identities(path: Path) -> Identities:
    """Return the identities in a file.

    Raises
    ------
    ConfigurationError
        It can't be read, or has something else; the message says where.
    """
    try:
        return parse_identities(read_regular(path).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"client_identities: {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"client_identities: {path}: is not UTF-8") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"client_identities: {path}: {error}") from None
