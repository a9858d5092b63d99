from __future__ import annotations

import os

from hypothesis import settings

from topk_bandit.process.threads import use_one_thread

use_one_thread(os.environ)

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("repeatable")
