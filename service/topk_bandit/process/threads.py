"""How many threads the linear algebra of a process uses: one.

Workers and experiments have threads or processes of their own, which more threads of BLAS would slow down. BLAS also
adds in another order with another number of threads, and workers can have the same posterior to the bit only with the
same number. Nothing else in the package sets it.
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
