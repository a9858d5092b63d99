"""What tenants, bandits, studies and features are named by."""

from __future__ import annotations

import re

__all__ = ["ID", "ID_RULE"]

ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
ID_RULE = "1 to 64 characters a-z, A-Z, 0-9, '.', '_' and '-'"
"""What an id is, for programs and for people."""
