"""The first calls of docs/clients.md, each run by its language where the machine has it, against the real service."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.faults.service import Service, serving
from tests.programs import find_program, leave_out
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
ITEMS = ("coffee", "milk", "tea")
CRATES = Path("/usr/share/cargo/registry")
"""Where Debian's packages of crates are."""

CARGO = {
    "Cargo.toml": """
        package = { name = "first", version = "0.1.0", edition = "2021" }
        dependencies = { serde_json = "1", ureq = { version = "2", features = ["json"] } }
        """,
    ".cargo/config.toml": f"""
        source.crates-io.replace-with = "debian"
        source.debian.directory = "{CRATES}"
        """,
}


class Language(NamedTuple):
    """How a program of a language is run; the last word is its file. `beside` are other files, by their paths."""

    fence: str
    command: tuple[str, ...]
    beside: Mapping[str, str] = MappingProxyType({})

    @property
    def is_installed(self) -> bool:
        return shutil.which(self.command[0]) is not None and (self.beside is not CARGO or CRATES.exists())


LANGUAGES = [
    Language("sh", ("bash", "first.sh")),
    Language("js", ("node", "first.mjs")),
    Language("go", ("go", "run", "first.go")),
    Language("java", ("java", "First.java")),
    Language("php", ("php", "first.php")),
    Language("ruby", ("ruby", "first.rb")),
    Language("rust", ("cargo", "run", "--offline", "--quiet", "--", "src/main.rs"), CARGO),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data")) as running:
        with running.client(tenant="acme") as client:
            client.create_bandit("home", slate_size=2, item_capacity=10)
            client.upsert_items("home", ITEMS)
        yield running


@pytest.mark.parametrize("language", LANGUAGES, ids=[language.fence for language in LANGUAGES])
def test_the_first_call(service: Service, language: Language, tmp_path: Path) -> None:
    if not language.is_installed:
        find_program(language.command[0])
        leave_out("crates of Rust", "apt-get install librust-ureq-dev librust-serde-json-dev")
    (program,) = re.findall(rf"```{language.fence}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    # A language that has to compile first may take longer than a shop waits.
    program = program.replace("127.0.0.1:50080", service.http_address).replace("300", "240000").replace("0.3", "240")
    for path, text in {**language.beside, language.command[-1]: program}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(dedent(text), encoding="utf-8")
    ended = subprocess.run(
        language.command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr
    with service.client(tenant="acme") as client:
        slate = client.recommend("home", request_id="view-1")
    assert re.findall("|".join(ITEMS), ended.stdout)[:2] == list(slate.items)
