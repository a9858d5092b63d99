"""How many threads the linear algebra of a process uses: one.

A worker computes in threads of its own and an experiment in processes of its own, and threads that BLAS starts as well
would get in their way. BLAS adds up in another order with another number of threads, so workers that are to have the
same posterior to the bit must use the same number. Nothing else of the package sets this number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["THREAD_VARIABLES", "use_one_thread"]

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""What the libraries under numpy and scipy read when they are loaded."""


def use_one_thread(environment: MutableMapping[str, str]) -> None:
    """Make BLAS use one thread in this process and in those it starts, unless the environment says otherwise.

    To be called before numpy is imported.
    """
    for variable in THREAD_VARIABLES:
        environment.setdefault(variable, "1")
