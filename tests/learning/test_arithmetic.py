"""Processes that compute alike have one description, and others have another."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.processors import PROCESSORS, THIS, Processor, executable, variables

from topk_bandit.learning.arithmetic import describe_arithmetic

pytestmark = pytest.mark.slow

PROGRAM = "from topk_bandit.learning.arithmetic import describe_arithmetic; print(describe_arithmetic())"


def described(processor: Processor = THIS, *, threads: int = 1) -> str:
    environment = variables(processor, threads=threads)
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_it_names_the_libraries_and_their_threads() -> None:
    text = describe_arithmetic()
    for name in ("numpy 2", "scipy 1", "numba 0"):
        assert name in text
    assert "\n" not in text


@pytest.mark.slow
def test_processes_alike_have_one_description_and_others_another() -> None:
    kinds = [processor for processor in (THIS, *PROCESSORS) if executable(processor)]
    texts = [described(processor) for processor in kinds]
    assert described() == texts[0]
    assert len(set(texts)) == len(texts)
    for processor, text in list(zip(kinds, texts, strict=True))[1:]:
        assert f"for {processor.compiled_for} " in text
    if "openblas" in texts[0]:
        assert " on 1 threads" in texts[0]
        assert texts[0].replace(" on 1 threads", " on 2 threads") == described(threads=2)


@pytest.mark.skipif(not executable(PROCESSORS[0]), reason="the kinds of processors are x86's")
def test_this_processor_is_one_of_them() -> None:
    assert [str(one) for one in PROCESSORS if executable(one)]
