from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from hypothesis import settings
from tests.long_forms import LONG, examples, has_long_form

from topk_bandit.process.threads import use_one_thread

if TYPE_CHECKING:
    import pytest

use_one_thread(os.environ)

# A shell starts what runs in its background with Ctrl-C ignored, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(30))
settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has no long form in a run of the long forms."""
    if not LONG:
        return
    left_out = [item for item in items if not has_long_form(item)]
    items[:] = [item for item in items if has_long_form(item)]
    config.hook.pytest_deselected(items=left_out)
