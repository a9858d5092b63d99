"""What the last release's protos promise, and that `make protos-breaking` refuses what breaks it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from grpc_tools import protoc
from tools.proto_folder import write_folder

ROOT = Path(__file__).resolve().parents[2]
RECOMMENDER, BANDITS = "recommender_service", "bandit_service"


def released() -> Path:
    (image,) = (ROOT / "protos").glob("released-*.binpb")
    return image


def compiled(folder: Path) -> Path:
    target = folder / "all.binpb"
    well_known = Path(protoc.__file__).parent / "_proto"
    flags = [f"-I{folder}", f"-I{well_known}", "--include_imports", "--include_source_info", f"-o{target}"]
    files = [str(path) for path in (folder / "topk_bandit/v1").glob("*.proto")]
    assert protoc.main(["protoc", *flags, *files]) == 0
    return target


def breaks(folder: Path) -> list[str]:
    """Return what the Makefile's command says of protos, a line for each break."""
    command = ["breaking", str(compiled(folder)), "--against", str(released()), "--exclude-imports"]
    buf = Path(sys.executable).with_name("buf")
    run = subprocess.run([buf, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    assert run.returncode == (100 if run.stdout else 0)
    return run.stdout.splitlines()


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    write_folder(tmp_path)
    return tmp_path


def change(protos: Path, name: str, pattern: str, replacement: str) -> None:
    path = protos / f"topk_bandit/v1/{name}.proto"
    text, changes = re.subn(pattern, replacement, path.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
    assert changes == 1
    path.write_text(text, encoding="utf-8")


def test_what_was_generated_from_the_last_release_talks_with_this_one(protos: Path) -> None:
    assert breaks(protos) == []


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "message"),
    [
        (RECOMMENDER, r"^ *repeated string candidate_item_ids = 3;", "", 'field "3" .*"candidate_item_ids".* deleted'),
        (RECOMMENDER, r"candidate_item_ids = 3;", "candidate_item_ids = 333;", 'field "3" .*"candidate_item_ids"'),
        (
            RECOMMENDER,
            r"candidate_item_ids = 3;",
            "candidates = 3;",
            'from "candidate_item_ids" to "candidates"',
        ),
        (RECOMMENDER, r"repeated string candidate_item_ids", "repeated bytes candidate_item_ids", "string.*bytes"),
        (BANDITS, r"rpc DeleteBandit\(", "rpc RemoveBandit(", '"DeleteBandit"'),
    ],
    ids=[
        "a field goes",
        "a field is renumbered",
        "a field is renamed",
        "a field has another type",
        "a call is renamed",
    ],
)
def test_a_break_is_reported(protos: Path, name: str, pattern: str, replacement: str, message: str) -> None:
    change(protos, name, pattern, replacement)
    lines = breaks(protos)
    assert lines
    assert re.search(message, "\n".join(lines))


def test_what_is_added_is_no_break(protos: Path) -> None:
    change(protos, RECOMMENDER, r"^( *)repeated string candidate_item_ids", r"\1string colour = 999;\n\g<0>")
    assert breaks(protos) == []


def test_the_protos_that_are_compared_with_are_those_of_the_newest_release() -> None:
    dated = re.findall(r"^## \[([^]]+)\] - \d{4}-", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released().name == f"released-{dated[0]}.binpb"
