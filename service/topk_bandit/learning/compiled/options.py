"""How the learner's loops are compiled.

A wrapper that nobody calls costs a tenth of a second to compile: none is made for C, and none for Python where only
compiled code calls a function. All of them together are a fifth of a first start's work. Nor is what only compiled code
calls cached: the caches of its callers have it in them. A division by zero gives what numpy says: a check, and the text
of an error, are compiled with each of them.
"""

from __future__ import annotations

from typing import Any

__all__ = ["FOR_LOOPS", "FOR_PYTHON", "REASSOCIATE", "WITHOUT_LOCK"]

FOR_PYTHON: dict[str, Any] = {"cache": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
"""For a function that Python calls, and that takes a tenth of a millisecond or less.

It keeps the interpreter's lock: who gives it up may wait longer for it than such a function takes (decision 67).
"""

WITHOUT_LOCK: dict[str, Any] = {**FOR_PYTHON, "nogil": True}
"""For a function that Python calls, and that may take longer: other threads go on meanwhile."""

FOR_LOOPS: dict[str, Any] = {**FOR_PYTHON, "no_cpython_wrapper": True, "cache": False}
"""For a function that only compiled functions call."""

REASSOCIATE = {"reassoc", "contract", "nsz"}
"""For sums whose order the compiler may choose, so that it can use wide registers."""
