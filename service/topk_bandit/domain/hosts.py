"""Which names a caller may use for this machine, where no key tells who it is.

A web page can have its own name resolve to 127.0.0.1, and then call what listens there as if it were its own server
(DNS rebinding). Its name is still in each request.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address

__all__ = ["is_loopback"]

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?")


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether a ``Host``, with its port or without, names this machine by its loopback."""
    match = _HOST.fullmatch(host)
    name = host if match is None else (match[1] or match[2]).lower().rstrip(".")
    if name == "localhost":  # any other name may come to mean another address
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
