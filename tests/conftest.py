from __future__ import annotations

import os
import signal

from hypothesis import settings

from topk_bandit.process.threads import use_one_thread

use_one_thread(os.environ)

# A shell starts what runs in its background with Ctrl-C ignored, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("repeatable")
