"""What the last digits of a result depend on beside the numbers that it is computed from.

The order in which a sum is added up is chosen by BLAS for the processor and the number of threads, by the compiler for
the width of its vectors, and by the version of each library. Two processes with the same description compute the same
bits from the same numbers; others agree to rounding (decision 18).
"""

from __future__ import annotations

import platform
from functools import cache
from hashlib import blake2b
from importlib.metadata import version

import numpy as np
import scipy.linalg  # noqa: F401 - brings a BLAS of its own
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba.core import config
from threadpoolctl import threadpool_info

__all__ = ["describe_arithmetic"]

_DIGEST_BYTES = 4


@cache
def describe_arithmetic() -> str:
    """Return what a process computes with, as a person reads it: equal texts promise equal bits.

    It names the kind of machine, the libraries, the kernels and threads that BLAS has chosen, and the processor that
    loops are compiled for. Digests stand for that processor's features and for the vectors that numpy has chosen, by
    what its elementary functions return.
    """
    numbers = f"numpy {version('numpy')} {_digest_of_functions()}, scipy {version('scipy')}"
    return ", ".join([platform.machine(), numbers, f"numba {version('numba')} for {_compiled_for()}", *sorted(_blas())])


def _compiled_for() -> str:
    """Return the processor that loops are compiled for, and a digest of its features."""
    chosen = vars(config)
    name, features = chosen["CPU_NAME"] or get_host_cpu_name(), chosen["CPU_FEATURES"]
    if features is None:
        features = get_host_cpu_features().flatten()
    return f"{name} {blake2b(features.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"


def _blas() -> set[str]:
    """Return each BLAS that is loaded, its version, kernels and threads."""
    return {
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')} "
        f"on {library['num_threads']} threads"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }


def _digest_of_functions() -> str:
    points = np.linspace(0.1, 9.7, 257)
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for function in (np.exp, np.log, np.log10, np.sqrt, np.tanh, np.sin):
        digest.update(function(points).tobytes())
    digest.update((points**1.7).tobytes())
    return digest.hexdigest()
