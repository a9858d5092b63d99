"""Write a folder of protos that compiles alone: ours, and what they import, from googleapis-common-protos.

``make protos-folder`` writes ``build/protos`` for whoever compiles them in another language. The repository has our
protos only.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from google.rpc import status_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["IMPORTED", "main", "write_folder"]

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = (
    "api/annotations",
    "api/client",
    "api/field_behavior",
    "api/http",
    "api/launch_stage",
    "longrunning/operations",
    "rpc/error_details",
    "rpc/status",
)
# The package has this one under another name than it is imported by.
_RENAMED = {"longrunning/operations": "longrunning/operations_proto"}


def write_folder(target: Path) -> None:
    """Write all protos below `target`, over those that are there."""
    shutil.copytree(ROOT / "protos", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.binpb"))
    source = Path(status_pb2.__file__).parents[1]
    for name in IMPORTED:
        path = target / "google" / f"{name}.proto"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / f"{_RENAMED.get(name, name)}.proto", path)


def main(arguments: Sequence[str]) -> int:
    """Write the folder that is given."""
    (target,) = arguments
    write_folder(Path(target))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
