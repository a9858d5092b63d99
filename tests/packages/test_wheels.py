"""The wheels have each file once, what is read while serving, and the protos beside the code that was made of them."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import grpc_tools
import pytest
from grpc_tools import protoc
from tools.proto_folder import write_folder

ROOT = Path(__file__).parents[2]
PROTOS = ROOT / "protos" / "topk_bandit" / "v1"


@pytest.fixture(scope="module")
def unpacked(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all wheels are, installed together."""
    folder = tmp_path_factory.mktemp("installed")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def test_each_file_of_the_source_tree_is_in_one_wheel(wheels: Path) -> None:
    packed: list[str] = []
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            packed += [name for name in archive.namelist() if ".dist-info/" not in name]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "service/topk_bandit"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    sources = [name.removeprefix("service/") for name in listed if (ROOT / name).is_file()]
    protos = [f"topk_bandit/v1/{path.name}" for path in (*PROTOS.glob("*.proto"), ROOT / "protos/service_config.json")]
    assert sorted(packed) == sorted([*sources, *protos])


SERVED = ["rpc/pages/index.html", "rpc/pages/openapi.json", "v1/service_config.json", "rpc/py.typed"]
CONSOLE = [f"rpc/console/{file.name}" for file in (ROOT / "service/topk_bandit/rpc/console").iterdir()]


def test_it_has_the_documents_that_are_served(unpacked: Path) -> None:
    files = {name: unpacked / "topk_bandit" / name for name in (*SERVED, *CONSOLE)}
    assert [name for name, file in files.items() if not file.is_file()] == []
    assert [name for name, file in files.items() if not file.stat().st_size] == ["rpc/py.typed"]


def test_its_protos_compile_from_where_it_is_installed(unpacked: Path, tmp_path: Path) -> None:
    names = sorted(f"topk_bandit/v1/{path.name}" for path in PROTOS.glob("*.proto"))
    write_folder(tmp_path / "imported")
    shutil.rmtree(tmp_path / "imported/topk_bandit")
    (tmp_path / "out").mkdir()
    folders = (unpacked, tmp_path / "imported", Path(grpc_tools.__file__).parent / "_proto")
    options = [f"-I{folder}" for folder in folders]
    assert protoc.main(["protoc", *options, f"--python_out={tmp_path / 'out'}", *names]) == 0
    assert sorted(path.name for path in (tmp_path / "out/topk_bandit/v1").iterdir()) == [
        f"{Path(name).stem}_pb2.py" for name in names
    ]
