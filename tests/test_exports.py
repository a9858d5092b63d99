"""What a module says it exports is what can be seen in it."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from types import ModuleType

import topk_bandit

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(topk_bandit.__path__, "topk_bandit.")
    if not found.name.startswith("topk_bandit.v1") and not found.name.endswith("__main__")
)
PUBLIC = [name for name in MODULES if not any(part.startswith("_") for part in name.split("."))]


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
    """Return the public classes and functions that a module defines."""
    public = {name: one for name, one in vars(module).items() if not name.startswith("_") and callable(one)}
    return {name for name, one in public.items() if getattr(one, "__module__", None) == module.__name__}


def test_the_client_shows_nothing_but_its_exports() -> None:
    client = importlib.import_module("topk_bandit.client")
    shown = {name for name in vars(client) if not name.startswith("_")}
    modules = {name for name in shown if isinstance(getattr(client, name), ModuleType)}
    assert shown - modules == set(client.__all__)
