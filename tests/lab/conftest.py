from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the laboratory as slow: nothing that serves depends on it."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("slow")
