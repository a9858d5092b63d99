"""The wheel has what is read while serving."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent


def test_it_has_the_documents_that_are_served() -> None:
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {"topk_bandit/rpc/pages/index.html", "topk_bandit/v1/openapi.json", "topk_bandit/py.typed"} <= packed
