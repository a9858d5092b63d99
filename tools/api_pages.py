"""Write the pages of ``docs/api`` from the docstrings of what users of the library import: ``make docs``.

Only the source is read: nothing is imported, so that a page depends on nothing but the code that it describes.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PAGES", "main", "pages"]

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "service"
FOLDER = ROOT / "docs" / "api"
PAGES = ("learning", "preferences", "client")
_SECTIONS = ("Parameters", "Attributes", "Returns", "Raises")
_GENERATED = "<!-- Written by `make docs` from the docstrings: change them, not this page. -->"

_INTRODUCTION = """\
A storefront needs the client alone. The learner and the preference models are a library as well, on arrays and
without a service; each has an example that a test runs:

- [a bandit on arrays](learning.md#topk_banditlearning): tell it of slates and rewards, decide;
- [designs](preferences.md#topk_banditpreferencesdesigns): which lists to ask people about;
- [the variational posterior](preferences.md#topk_banditpreferencesmodels): what few answers say, and how surely.

What each module has:
"""

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class _Module:
    """A module's name and source; `defined` has its classes and functions, `imported` where other names come from."""

    name: str
    tree: ast.Module
    defined: Mapping[str, _Definition]
    imported: Mapping[str, str]

    @classmethod
    def read(cls, name: str) -> _Module:
        path = SOURCE / Path(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return cls(
            name,
            tree,
            {node.name: node for node in tree.body if isinstance(node, _Definition)},
            {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names},
        )

    @property
    def exported(self) -> list[str]:
        """The names in ``__all__``, in alphabetical order whatever their case."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return sorted(ast.literal_eval(node.value), key=str.lower)
        return []

    def find(self, name: str) -> tuple[_Module, _Definition] | None:
        """Return the class or function of this name and its module; None for another value, or another package's."""
        if name in self.defined:
            return self, self.defined[name]
        origin = self.imported.get(name, "")
        return _Module.read(origin).find(name) if origin.startswith("topk_bandit.") else None


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` return 1 if one is not as it would be written."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        print(*(f"{path.relative_to(ROOT)} is out of date: run make docs" for path in stale), sep="\n", end="")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(pages()[path], encoding="utf-8")
    return 0


def pages() -> dict[Path, str]:
    """Return the text of each page, by its path."""
    texts = {FOLDER / f"{name}.md": "\n".join(_page(name)) for name in PAGES}
    return texts | {FOLDER / "README.md": "\n".join(_index())}


def _index() -> Iterator[str]:
    yield from ("# The library and the client", "", _GENERATED, "", _INTRODUCTION)
    for name in PAGES:
        yield f"- [`topk_bandit.{name}`]({name}.md): {_summary(_Module.read(f'topk_bandit.{name}').tree)}"
        for module in list(_modules(f"topk_bandit.{name}"))[1:]:
            short = module.name.removeprefix("topk_bandit.")
            yield f"  - [`{short}`]({name}.md#{_anchor(module.name)}): {_summary(module.tree)}"
    yield ""


def _page(name: str) -> Iterator[str]:
    yield from (f"# topk_bandit.{name}", "", _GENERATED, "")
    for module in _modules(f"topk_bandit.{name}"):
        yield from (f"## {module.name}", "", *_prose(_docstring(module.tree)), "")
        for exported in module.exported:
            found = module.find(exported)
            if found is not None:
                yield from _described(*found)


def _modules(package: str) -> Iterator[_Module]:
    """Yield a package and its public modules; of the client the package alone, which has all names."""
    folder = SOURCE / Path(*package.split("."))
    files = [folder / "__init__.py"] if package.endswith(".client") else sorted(folder.rglob("*.py"), key=_order)
    for file in files:
        parts = [part for part in file.relative_to(SOURCE).with_suffix("").parts if part != "__init__"]
        if not any(part == "compiled" or part.startswith("_") for part in parts):
            yield _Module.read(".".join(parts))


def _order(file: Path) -> tuple[str, ...]:
    """Put a package before its modules."""
    return tuple("" if part == "__init__.py" else part for part in file.parts)


def _described(module: _Module, node: _Definition) -> Iterator[str]:
    """Yield what a class or function is: its signature, its docstring, and its public methods."""
    yield from (
        f"### {node.name}",
        "",
        "```python",
        *_signature(module, node),
        "```",
        "",
        *_prose(_docstring(node)),
        "",
    )
    for method in _methods(module, node) if isinstance(node, ast.ClassDef) else ():
        kinds = [f"@{ast.unparse(one)}" for one in method.decorator_list]
        yield from (f"#### {node.name}.{method.name}", "", "```python", *kinds, _of_function(method), "```", "")
        yield from (*_prose(_docstring(method)), "")


def _methods(module: _Module, node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the public methods that have a docstring, then those that are inherited from classes of ours."""
    seen = set()
    for owner in _ancestry(module, node):
        for member in owner.body:
            if _is_shown(member) and member.name not in seen:
                seen.add(member.name)
                yield member


def _is_shown(member: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return not member.name.startswith("_") and bool(_docstring(member))


def _ancestry(module: _Module, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Yield a class, then the classes of ours that it inherits from."""
    yield node
    for base in node.bases:
        found = module.find(base.id) if isinstance(base, ast.Name) else None
        if found is not None and isinstance(found[1], ast.ClassDef):
            yield from _ancestry(found[0], found[1])


def _signature(module: _Module, node: _Definition) -> Iterator[str]:
    if not isinstance(node, ast.ClassDef):
        yield _of_function(node)
        return
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    yield f"class {node.name}({bases})" if bases else f"class {node.name}"
    made = [member for one in _ancestry(module, node) for member in one.body if _is_constructor(member)]
    if made:
        yield f"    {_of_function(made[0])}"
        return
    for member in node.body:
        if isinstance(member, ast.AnnAssign | ast.Assign) and not ast.unparse(member).startswith("_"):
            yield f"    {ast.unparse(member)}"


def _is_constructor(member: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(member, ast.FunctionDef) and member.name == "__init__"


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{word} {node.name}({ast.unparse(node.args)}){result}"


def _docstring(node: ast.Module | _Definition) -> str:
    return ast.get_docstring(node) or ""


def _summary(tree: ast.Module) -> str:
    return _docstring(tree).partition("\n\n")[0].replace("\n", " ").rstrip(":")


def _prose(docstring: str) -> Iterator[str]:
    """Yield a docstring as Markdown: titles of sections in bold, their entries as lists, examples as code."""
    lines, number, section = docstring.splitlines(), 0, ""
    while number < len(lines):
        line = lines[number]
        if line in _SECTIONS and lines[number + 1 : number + 2] == ["-" * len(line)]:
            section, number = line, number + 2
            yield from (f"**{section}**", "")
            continue
        if line.startswith(">>>"):
            end = next((n for n in range(number, len(lines)) if not lines[n]), len(lines))
            yield from ("```pycon", *lines[number:end], "```")
            number = end
            continue
        yield _entry(line) if section and line and not line.startswith(" ") else _outside_code(line)
        number += 1


def _entry(line: str) -> str:
    """Return an entry of a section as that of a list."""
    return f"- `{line}`:"


def _outside_code(line: str) -> str:
    """Return a line of prose; two colons announce an equation, which is code by its indentation."""
    return re.sub(r"::$", ":", line)


def _anchor(title: str) -> str:
    """Return the anchor that is made of a heading."""
    return title.lower().replace(".", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
