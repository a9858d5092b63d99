"""Puts the rooms of a package into its wheel: all packages share one source tree, `service/topk_bandit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[2]


class Rooms(BuildHookInterface[Any]):
    """Includes the rooms that `rooms` of the configuration lists, and the licence."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include nothing where the package is installed to be edited: there the source tree is on the path."""
        if version == "editable":
            return
        included = build_data["force_include"]
        for room in self.config["rooms"]:
            included[str(ROOT / "service/topk_bandit" / room)] = f"topk_bandit/{room}"
        if "v1" in self.config["rooms"]:  # beside the code made of them: protoc finds them from site-packages
            included[str(ROOT / "protos/topk_bandit/v1")] = "topk_bandit/v1"
            included[str(ROOT / "protos/service_config.json")] = "topk_bandit/v1/service_config.json"
        build_data["extra_metadata"][str(ROOT / "LICENSE")] = "LICENSE"
