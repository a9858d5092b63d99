"""Each package is installed into an empty environment from its wheel, and its first example runs there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.service import serving
from tests.packages.conftest import PACKAGES, ROOT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.service import Service

pytestmark = pytest.mark.slow  # they are filled from an index

CALLS = Path(__file__).with_name("first_calls.py")
MOST_BYTES = 25_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def whole(install: Callable[..., Path]) -> Path:
    return install("topk-bandit[lab,personalizer]")


def example(package: str, kind: str) -> str:
    """Return the last block of code of a kind in the package's README."""
    text = (ROOT / "service/packages" / package / "README.md").read_text(encoding="utf-8")
    return str(re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[-1])


def run(programs: Path, *command: str, status: int = 0, folder: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TOPK_BANDIT"))}
    path = f"{programs}:{environment['PATH']}"
    done = subprocess.run(
        command, env=environment | {"PATH": path}, cwd=folder or programs, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_python(programs: Path, *arguments: str) -> str:
    return run(programs, str(programs / "python"), "-W", "error", *arguments)


def test_a_storefront_needs_little(install: Callable[..., Path], service: Service) -> None:
    programs = install("topk-bandit-client")
    (installed,) = programs.parent.glob("lib/*/site-packages")
    files = [path for path in installed.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    text = example("client", "python").replace("127.0.0.1:50051", service.address)
    shown, outcome = run_python(programs, "-c", text).splitlines()
    assert re.fullmatch(r"show \w+, \w+", shown)
    assert outcome == "accepted"


@pytest.mark.parametrize("resolution", ["highest", "lowest-direct"])
def test_the_client_calls_by_every_door(install: Callable[..., Path], tmp_path: Path, resolution: str) -> None:
    needed = ("aiohttp", "googleapis-common-protos", "grpcio", "protobuf", "urllib3")
    programs = install("topk-bandit-client[http,async-http]", *needed, resolution=resolution)
    with serving(tmp_path) as service:
        told = run_python(programs, str(CALLS), service.address, f"http://{service.http_address}")
    assert told.startswith("called with grpcio")
    if resolution != "highest":
        client = (ROOT / "service/packages/client/pyproject.toml").read_text(encoding="utf-8")
        assert re.findall(r'"(?:grpcio|protobuf)>=([\d.]+)"', client) == re.findall(r"[\d.]+\d", told)


def test_the_mathematics_runs_alone(install: Callable[..., Path]) -> None:
    programs = install("topk-bandit-core")
    assert run_python(programs, "-c", example("core", "python")) == "best slate begins with item 3\n"
    assert "No module named 'grpc'" in run(programs, str(programs / "python"), "-c", "import grpc", status=1)


def test_the_values_stand_alone(install: Callable[..., Path]) -> None:
    told = run_python(install("topk-bandit-domain"), "-c", example("domain", "python"))
    assert told == "tenants/shop/bandits/home\n"


def test_the_service_runs_without_the_other_packages(install: Callable[..., Path]) -> None:
    programs = install("topk-bandit")
    told = run(programs, "topk-bandit", "demo", "--rounds=60")
    assert "random" in told
    for command, package in (
        ("experiment table-2", "lab"),
        ("personalizer shop/home", "personalizer"),
    ):
        told = run(programs, "topk-bandit", *command.split(), status=1)
        assert told == f"topk-bandit: this command needs topk-bandit-{package}: pip install 'topk-bandit[{package}]'\n"


def test_a_service_without_its_other_packages_says_how_to_mend_it(install: Callable[..., Path]) -> None:
    """As pip leaves it that upgrades the version before, of which all files were its own."""
    programs = install("topk-bandit")
    (domain,) = programs.parent.glob("lib/*/site-packages/topk_bandit/domain")
    shutil.rmtree(domain)
    told = run(programs, "topk-bandit", "--version", status=1)
    assert told.startswith("topk-bandit: topk_bandit.domain is missing.")
    assert "pip install --force-reinstall --no-deps topk-bandit-domain topk-bandit-client topk-bandit-core" in told


def test_the_laboratory_runs_an_experiment(whole: Path, tmp_path: Path) -> None:
    install_it, experiment = example("lab", "sh").splitlines()
    assert install_it == "pip install 'topk-bandit[lab]'"
    told = run(whole, *experiment.split(), folder=tmp_path)
    assert "met     WCK: equal to the paper's" in told
    assert (tmp_path / "results/table-2.png").is_file()


def test_the_door_of_another_service_opens(whole: Path, service: Service, tmp_path: Path) -> None:
    install_it, command = example("personalizer", "sh").splitlines()
    assert install_it == "pip install 'topk-bandit[personalizer]'"
    with opened(whole, f"{command} --address {service.address} --listen 127.0.0.1:0", tmp_path) as address:
        body = b'{"actions": [{"id": "tea", "features": []}, {"id": "milk", "features": []}], "eventId": "one"}'
        asked = urllib.request.Request(f"{address}/rank", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            assert b'"rewardActionId"' in answer.read()


@contextmanager
def opened(programs: Path, command: str, folder: Path) -> Iterator[str]:
    """Run a command that says where it serves, until the end of the block."""
    words = [str(programs / command.split(maxsplit=1)[0]), *command.split()[1:]]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split(" at ")[1].strip()
        finally:
            process.terminate()
            process.wait(PATIENCE)


def test_all_packages_have_one_version_and_need_each_other_in_it() -> None:
    projects = [tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in (ROOT, *PACKAGES)]
    (released,) = {project["version"] for project in projects}
    extras = [each for project in projects for each in project.get("optional-dependencies", {}).values()]
    needed = [one for part in (*(project["dependencies"] for project in projects), *extras) for one in part]
    ours = [one for one in needed if one.startswith("topk-bandit")]
    assert {one.partition("==")[2] for one in ours} == {released}
    assert {one.partition("==")[0].partition("[")[0] for one in ours} == {project["name"] for project in projects}
