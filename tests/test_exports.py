"""What a module says it exports is what can be seen in it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections import Counter
from pathlib import Path
from types import ModuleType

import topk_bandit

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(topk_bandit.__path__, "topk_bandit.")
    if not found.name.startswith("topk_bandit.v1") and not found.name.endswith("__main__")
)
PUBLIC = [name for name in MODULES if not any(part.startswith("_") for part in name.split("."))]


def defined(module: ModuleType) -> set[str]:
    """Return the public names that a module's own source binds at its top, without what it imports."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def exports(module: ModuleType) -> list[str]:
    return list(getattr(module, "__all__", ()))


def test_what_is_exported_can_be_imported() -> None:
    modules = list(map(importlib.import_module, MODULES))
    assert len(modules) > 400
    assert {module.__name__: twice for module in modules if (twice := repeated(exports(module)))} == {}
    gone = {f"{module.__name__}.{one}" for module in modules for one in exports(module) if not hasattr(module, one)}
    assert gone == set()


def repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_every_class_and_function_is_exported_or_private() -> None:
    modules = map(importlib.import_module, PUBLIC)
    hidden = {f"{module.__name__}.{one}" for module in modules for one in made_in(module) - set(exports(module))}
    assert hidden == set()


def made_in(module: ModuleType) -> set[str]:
    """Return the classes and functions that a module defines."""
    return {one for one in defined(module) if callable(getattr(module, one)) and _is_made_in(module, one)}


def _is_made_in(module: ModuleType, name: str) -> bool:
    return getattr(getattr(module, name), "__module__", None) == module.__name__


def test_the_client_shows_nothing_but_its_exports() -> None:
    client = importlib.import_module("topk_bandit.client")
    shown = {name for name in vars(client) if not name.startswith("_")}
    modules = {name for name in shown if isinstance(getattr(client, name), ModuleType)}
    assert shown - modules == set(client.__all__)
