from __future__ import annotations

import os

from hypothesis import settings

# numpy reads these once, when it is imported: one thread keeps the order of every sum, and leaves the other core alone.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("repeatable")
