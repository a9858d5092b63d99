"""The list of what the image is made of, as CycloneDX: made by the command with which the image makes its own."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow  # it makes environments, and fills them

ROOT = Path(__file__).parent.parent
CONTAINERFILE = re.sub(r"\\\n\s*", "", (ROOT / "deploy/Containerfile").read_text(encoding="utf-8"))
OURS = ["topk-bandit", *(f"topk-bandit-{name}" for name in re.findall(r" \./(\w+)", CONTAINERFILE))]
COMMAND = r"cyclonedx-py (environment .*?) -o (\S+) (\S+)$"


def locked(name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the version of each package that a lock installs on this machine."""
    lines = re.findall(r"^([a-z].*?) \\$", (ROOT / f"requirements/{name}.lock").read_text(), re.MULTILINE)
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate():
            (pin,) = requirement.specifier
            yield canonicalize_name(requirement.name), pin.version


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment that has of each package of the image what says what it is, and no code."""
    environment = tmp_path_factory.mktemp("image")
    venv.create(environment)
    (packages,) = environment.glob("lib/*/site-packages")
    here = {
        canonicalize_name(folder.name.split("-")[0]): folder
        for folder in Path(sysconfig.get_path("purelib")).glob("*.dist-info")
    }
    for name in [*dict(locked("runtime")), *OURS]:
        (packages / here[name].name).symlink_to(here[name])
    return environment


@pytest.fixture(scope="module")
def listed(installed: Path) -> str:
    """Return what the image's command writes of it."""
    (found,) = re.findall(COMMAND, CONTAINERFILE, re.MULTILINE)
    assert found[2] == "/opt/topk-bandit"
    target = installed / "sbom.cdx.json"
    options = shlex.split(found[0].replace("/src/", f"{ROOT}/"))
    program = Path(sys.executable).with_name("cyclonedx-py")
    subprocess.run([program, *options, "-o", target, installed], check=True)
    return target.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def document(listed: str) -> dict[str, Any]:
    return dict(json.loads(listed))


def faults(text: str) -> object:
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - takes seconds, which each process of a run would spend
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)


def test_it_is_valid_by_the_schema(listed: str) -> None:
    assert faults(listed) is None


def test_the_schema_refuses_what_is_no_list(document: dict[str, Any]) -> None:
    nameless = {**document, "components": [{"type": "library", "version": "1.0"}]}
    assert "'name' is a required property" in str(faults(json.dumps(nameless)))


def test_it_lists_what_is_installed_and_nothing_else(document: dict[str, Any]) -> None:
    root = document["metadata"]["component"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (root["name"], root["version"]) == ("topk-bandit", project["version"])
    components = [(canonicalize_name(one["name"]), one["version"]) for one in document["components"]]
    ours = [(name, project["version"]) for name in OURS[1:]]
    assert sorted(components) == sorted([*locked("runtime"), *ours])
    # Tools that look for known faults go by these.
    purls = {one["purl"].lower().replace("_", "-") for one in document["components"] if "purl" in one}
    assert purls == {f"pkg:pypi/{name}@{version}" for name, version in locked("runtime")}


def test_it_tells_what_needs_what(document: dict[str, Any]) -> None:
    needs = {one["ref"]: set(one.get("dependsOn", ())) for one in document["dependencies"]}
    versions = dict(locked("runtime"))
    assert f"msgspec=={versions['msgspec']}" in needs[document["metadata"]["component"]["bom-ref"]]
    assert f"llvmlite=={versions['llvmlite']}" in needs[f"numba=={versions['numba']}"]


def test_the_image_keeps_it() -> None:
    (found,) = re.findall(COMMAND, CONTAINERFILE, re.MULTILINE)
    kept = CONTAINERFILE.rpartition("\nFROM ")[2]
    assert f"COPY --from=sbom {found[1]} /usr/share/sbom/topk-bandit.cdx.json\n" in kept
    assert "cyclonedx" not in kept


def test_make_writes_it_as_the_image_does() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (of_make,), (of_image,) = (re.findall(COMMAND, text, re.MULTILINE) for text in (makefile, CONTAINERFILE))
    assert of_make[0] == of_image[0].replace("/src/", "")
    dry = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/dev.stamp", "sbom"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (python,) = re.findall(r"^ARG BASE=python:([\d.]+)", CONTAINERFILE, re.MULTILINE)
    assert f"--python-version {python} " in dry.stdout
    (taken_out,) = re.findall(r"/pip uninstall --yes (.*) pip && ", CONTAINERFILE)
    assert "hatchling" in taken_out
    assert f"uv pip uninstall --quiet --python build/sbom {taken_out}\n" in dry.stdout


def test_the_image_has_the_tool_that_is_tested_here() -> None:
    assert set(locked("sbom")) <= set(locked("dev")) | set(locked("runtime"))
    assert "cyclonedx-bom" in dict(locked("sbom"))
