from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "service/packages").glob("*/pyproject.toml"))
UV = str(Path(sys.executable).with_name("uv"))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a wheel of each package."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--wheel", "--no-build-isolation", f"--python={sys.executable}", f"--out-dir={folder}"]
    for package in (ROOT, *PACKAGES):
        subprocess.run([UV, "build", *options, str(package)], check=True)
    return folder


def variables() -> dict[str, str]:
    """Return this process's environment, with the index that pip is told to look at, as `make` has it."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    index = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {**({"UV_DEFAULT_INDEX": index} if index else {}), **os.environ}


@pytest.fixture(scope="session")
def install(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return what installs packages into an empty environment, and returns the folder of its programs."""

    def install(*requirements: str, resolution: str = "highest") -> Path:
        folder = tmp_path_factory.mktemp("environment") / "python"
        subprocess.run([UV, "venv", "--quiet", f"--python={sys.executable}", str(folder)], check=True)
        programs = folder / "bin"
        options = ["--quiet", "--compile-bytecode", f"--find-links={wheels}", f"--resolution={resolution}"]
        command = [UV, "pip", "install", *options, f"--python={programs / 'python'}", *requirements]
        subprocess.run(command, check=True, cwd=folder, env=variables())
        return programs

    return install
