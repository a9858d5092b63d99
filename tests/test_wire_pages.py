"""``docs/wire`` says what the protos say, all of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import grpc_tools
import pytest
from grpc_tools import protoc
from tools.proto_folder import write_folder

ROOT = Path(__file__).parent.parent
PROTOS = ROOT / "protos" / "topk_bandit" / "v1"
PAGES = ROOT / "docs" / "wire"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the descriptors of all protos, with their comments."""
    folder = tmp_path_factory.mktemp("compiled")
    write_folder(folder / "protos")
    includes = [f"-I{one}" for one in (folder / "protos", Path(grpc_tools.__file__).parent / "_proto")]
    names = sorted(f"topk_bandit/v1/{path.name}" for path in PROTOS.glob("*.proto"))
    options = ["--include_imports", "--include_source_info", f"-o{folder / 'protos.binpb'}"]
    assert protoc.main(["protoc", *includes, *options, *names]) == 0
    return folder / "protos.binpb"


def generate(tools: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tools / "wire_pages.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pages_are_those_of_the_protos(compiled: Path) -> None:
    done = generate(ROOT / "tools", str(compiled), "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_pages_that_are_out_of_date_are_named_and_mended(compiled: Path, tmp_path: Path) -> None:
    tools, pages = tmp_path / "tools", tmp_path / "docs" / "wire"
    shutil.copytree(ROOT / "tools", tools, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PAGES, pages)
    (pages / "features.md").write_text("something else")
    (pages / "gone_service.md").write_text("of a proto that is gone")
    done = generate(tools, str(compiled), "--check")
    stale = [f"docs/wire/{name} is out of date: run make protos" for name in ("features.md", "gone_service.md")]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (1, stale, "")
    assert generate(tools, str(compiled)).returncode == 0
    assert {path.name: path.read_bytes() for path in pages.iterdir()} == {
        path.name: path.read_bytes() for path in PAGES.iterdir()
    }


def test_every_call_message_field_and_value_is_described() -> None:
    protos = sorted(PROTOS.glob("*.proto"))
    assert len(protos) > 3
    assert {proto.stem: missing for proto in protos if (missing := undescribed(proto))} == {}


def undescribed(proto: Path) -> list[str]:
    """Return what a proto has, and its page does not describe."""
    text, page = proto.read_text(encoding="utf-8"), (PAGES / f"{proto.stem}.md").read_text(encoding="utf-8")
    called = re.findall(r"^  rpc (\w+)\(", text, flags=re.MULTILINE)
    missing = [name for name in called if not re.search(rf"^### \w+\.{name}$", page, flags=re.MULTILINE)]
    named = re.findall(r"^(?:service|message|enum) (\w+)", text, flags=re.MULTILINE)
    missing += [name for name in named if f"\n## {name}\n" not in page]
    fields = re.findall(r"^ +(?:[\w.]+ )*[\w.<>, ]+ (\w+) = \d+[;\[ ]", text, flags=re.MULTILINE)
    values = re.findall(r"^  ([A-Z_0-9]+) = \d+;", text, flags=re.MULTILINE)
    assert len(named) > 1, proto
    return missing + [name for name in (*fields, *values) if f"\n- `{name}`" not in page]


def test_messages_of_other_files_are_linked() -> None:
    page = (PAGES / "recommender_service.md").read_text(encoding="utf-8")
    assert "- `features`, map of string to [`FeatureValue`](features.md#featurevalue): " in page
    assert "[`RecommendRequest`](#recommendrequest) → [`RecommendResponse`](#recommendresponse)" in page
