"""Kinds of processors that this one can stand for: their kernels in BLAS, their vectors in numpy and in compiled loops.

Each of the three libraries can be told by an environment variable, read when it is loaded, to do without instructions
that this processor has. So what is promised between unlike machines is tried on one.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROCESSORS", "THIS", "Processor", "executable", "variables"]

_VECTORS = ("X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR")
"""What numpy chooses from at run time, each with all before it."""


@dataclass(frozen=True)
class Processor:
    """A kind of processor.

    Attributes
    ----------
    name
        As OpenBLAS calls its kernels; empty for this processor as it is.
    compiled_for
        As LLVM calls it.
    vectors
        The last of numpy's choices that it has; empty for none.
    """

    name: str
    compiled_for: str = ""
    vectors: str = ""

    def __str__(self) -> str:
        return self.name or "this one"

    @property
    def variables(self) -> Mapping[str, str]:
        """What the libraries read."""
        if not self.name:
            return {}
        without = _VECTORS[_VECTORS.index(self.vectors) + 1 :] if self.vectors else _VECTORS
        return {
            "OPENBLAS_CORETYPE": self.name,
            "NUMBA_CPU_NAME": self.compiled_for,
            "NUMBA_CPU_FEATURES": "",
            "NPY_DISABLE_CPU_FEATURES": " ".join(without),
        }


THIS = Processor("")
PROCESSORS = (
    Processor("Nehalem", "nehalem"),
    Processor("Haswell", "haswell", "X86_V3"),
    Processor("Zen", "znver2", "X86_V3"),
    Processor("SkylakeX", "skylake-avx512", "X86_V4"),
)


def executable(processor: Processor) -> bool:
    """Return whether this processor has all instructions of that kind."""
    from numpy._core._multiarray_umath import __cpu_features__ as features  # noqa: PLC0415

    if not processor.name:
        return True
    return platform.machine().lower() in {"x86_64", "amd64"} and features.get(processor.vectors or "X86_V2", False)


def variables(processor: Processor, *, threads: int = 1) -> dict[str, str]:
    """Return this process's environment for a process that computes as `processor` does, with so many BLAS threads."""
    kept = {name: value for name, value in os.environ.items() if name not in PROCESSORS[0].variables}
    return {**kept, **processor.variables, "OPENBLAS_NUM_THREADS": str(threads)}
