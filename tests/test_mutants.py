"""`make mutants` changes what it should and nothing else, and its tests run what it changed."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402 - its folder is no package
from mutations import mutants_of  # noqa: E402


def changes(source: str, path: str = "a.py") -> list[str]:
    return [one.change for one in mutants_of(path, source)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b", ["a < b => (a <= b)"]),
        ("x = a == b != c", ["a == b != c => (a != b != c)", "a == b != c => (a == b == c)"]),
        ("x = a + b * c", ["a + b * c => (a - b * c)", "b * c => (b / c)"]),
        ("x += a", ["x += a => x -= a"]),
        ("x = a and b", ["a and b => (a or b)"]),
        ("x = not a", ["not a => a"]),
        ("x = 0, True, 0.5", ["0 => 1", "True => False", "0.5 => 1.5"]),
        ("x = max(a, b)", ["max => min", "max(a, b) => a", "max(a, b) => b"]),
        ("x = np.maximum(a, 0.0)", ["np.maximum => np.minimum", "np.maximum(a, 0.0) => a", "0.0 => 1.0"]),
        ("x = np.argmax(a)", ["np.argmax => np.argmin"]),
        ("x = abs(a)", ["abs(a) => a"]),
        ("x = f(a, b)", ["f(a, b) => f(b, a)"]),
        ("x = f(a=one, b=other)", ["f(a=one, b=other) => f(a=other, b=one)"]),
        ("x = replace(a, b=f(), c=g())", ["replace(a, b=f(), c=g()) => replace(a, c=g())"]),
        ("f(a)", ["f(a) => pass"]),
        ("x = a if b() else c", ["b() => (not b())"]),
        ("x = f(slate=g())", ["g() => g()[::-1]"]),
    ],
)
def test_each_operator_changes_what_it_is_for(line: str, expected: list[str]) -> None:
    assert set(expected) <= set(changes(line))
    assert len(changes(line)) == len(set(changes(line)))


def test_a_returned_array_is_reversed_and_a_returned_number_is_not() -> None:
    assert changes("def f() -> NDArray[np.int32]:\n    return a\n") == ["a => a[::-1]"]
    assert changes("def f() -> tuple[int, ...]:\n    return a\n") == ["a => a[::-1]"]
    assert changes("def f() -> float:\n    return a\n") == []
    assert changes("def f() -> tuple[int, ...]:\n    return ()\n") == []


def test_arguments_of_different_types_are_not_swapped() -> None:
    assert changes("def f(a: int, b: int) -> int:\n    return g(a, b)\n") == ["g(a, b) => g(b, a)"]
    assert changes("def f(a: int, b: str) -> int:\n    return g(a, b)\n") == []


@pytest.mark.parametrize(
    "source",
    [
        '"""A text."""',
        "def f(a: Literal[1]) -> Literal[2]: ...",
        "@cache(maxsize=1)\ndef f(): ...",
        "if TYPE_CHECKING:\n    x = 1",
        "raise ValueError(f'{a + b}', 1)",
        "_log.warning('so', 1)",
        "x = f'{a + b}'",
        "match a:\n    case (1, 2): ...",
        "x = zip(a(), b(), strict=True)",
    ],
)
def test_what_says_nothing_of_behaviour_is_left_alone(source: str) -> None:
    assert changes(source) == []


def test_one_place_of_the_source_is_changed_and_the_rest_is_as_it_was() -> None:
    source = "# é\ndef f(a):\n    return 'é', a < 1  # why\n"
    assert [one.text for one in mutants_of("a.py", source)] == [
        "# é\ndef f(a):\n    return 'é', (a <= 1)  # why\n",
        "# é\ndef f(a):\n    return 'é', a < 2  # why\n",
    ]


def test_an_id_stays_when_something_else_is_edited() -> None:
    before = "class A:\n    def f(self):\n        return a < b\n"
    after = "x = 1 < 2\n\n\n" + before
    (known,) = mutants_of("a.py", before)
    assert (known.id, known.line) == ("a.py::A.f::compare::0", 3)
    assert [one.line for one in mutants_of("a.py", after) if one.id == known.id] == [6]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("if a < b then", ["a < b => not (a < b)", "< => <="]),
        ("if a == b then", ["== => ~="]),
        ("local x = a and not b or 'and'", ["and => or", "not => ", "or => and"]),
        ("local x = -a + b -- and 1", ["+ => -"]),
        ("local x = {1, -2, 'x1'}", ["1 => 2", "2 => 3"]),
        ("  write('HSET', key)", ["write('HSET', key) => do end"]),
        ("x =\n  write('HSET', key)", []),
        ("x = math.min(a, b)", ["min => max"]),
        ("  refuse(KEYS[1])", ["refuse(KEYS[1]) => do end"]),
    ],
)
def test_lua_is_changed_too(line: str, expected: list[str]) -> None:
    assert changes(line, "a.lua") == expected


def test_a_lua_mutant_is_in_the_function_that_it_is_in() -> None:
    source = "local function f(a)\n  return a < b\nend\n\nlocal x = a < b\n"
    assert [one.id for one in mutants_of("a.lua", source)] == ["a.lua::f::sign::0", "a.lua::script::sign::0"]


def test_mutants_of_a_module_can_be_parsed_and_are_all_different() -> None:
    found = mutants.find_mutants("learning/propensities.py")
    for one in found:
        ast.parse(one.text)
    assert len(found) == len({one.id for one in found}) == len({one.text for one in found}) > 50


def test_each_room_names_tests_that_there_are() -> None:
    for path in mutants.ROOMS:
        assert (ROOT / mutants.PACKAGE / path).is_file()
        for name in mutants.tests_of(path):
            file, _, found = name.partition("::")
            assert f"class {found}(" in (ROOT / file).read_text(encoding="utf-8") or not found


@pytest.mark.slow
def test_each_file_of_a_room_has_tests_that_are_run_for_a_mutant() -> None:
    files = {name.partition("::")[0] for path in mutants.ROOMS for name in mutants.tests_of(path)}
    listing = [sys.executable, *mutants.PYTEST, "--collect-only", *sorted(files)]
    printed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert files - {line.partition("::")[0] for line in printed.splitlines()} == set()


def test_each_listed_survivor_is_a_mutant_and_has_a_reason() -> None:
    every = [one for path in mutants.ROOMS for one in mutants.find_mutants(path)]
    assert mutants.complaints_about(mutants.read_known().survivors, every) == []
    listed = tomllib.loads((ROOT / mutants.SURVIVORS).read_text(encoding="utf-8"))["survivor"]
    assert all(len(one["reason"]) > 20 for one in listed)


def test_a_listed_survivor_that_is_no_mutant_any_more_is_a_complaint() -> None:
    found = mutants_of("a.py", "x = a < b")
    assert mutants.complaints_about({"a.py::module::compare::0": "a < b => (a <= b)"}, found) == []
    assert mutants.complaints_about({"a.py::module::compare::0": "a < c => (a <= c)"}, found)
    assert mutants.complaints_about({"a.py::module::compare::1": "a < b => (a <= b)"}, found)


def test_a_sample_is_of_one_complete_module_and_has_no_listed_survivor() -> None:
    paths = ["learning/search.py", "learning/propensities.py", "store/restores.py"]
    every = [one for path in paths for one in mutants.find_mutants(path)]
    known, sampled = mutants.Known({every[0].id: every[0].change}, paths[:2]), set()
    for seed in range(20):
        options = mutants.parse(["--sample", "--count", "5", "--seed", str(seed)])
        chosen = mutants.choose(every, known, options)
        assert chosen == mutants.choose(every, known, options)
        [path] = {one.path for one in chosen}
        sampled.add(path)
        assert every[0] not in chosen
    assert sampled == set(paths[:2])


def test_the_complete_modules_are_rooms() -> None:
    complete = mutants.read_known().complete
    assert complete
    assert set(complete) <= set(mutants.ROOMS)


IN_A_PROCESS_OF_ITS_OWN = """
import subprocess
import sys

COUNT = '''
import numpy as np
from topk_bandit.learning.near_slates import NearSlates
items = np.arange(3, dtype=np.int32)
raise SystemExit(len(NearSlates(items[:2], items)) != 3)
'''


def test_a_count() -> None:
    assert subprocess.run([sys.executable, "-c", COUNT], check=False).returncode == 0
"""


@pytest.mark.slow
def test_tests_and_what_they_start_run_what_was_changed(tmp_path: Path) -> None:
    worker, path = mutants.Worker.in_folder(tmp_path), "learning/near_slates.py"
    before = (tmp_path / mutants.PACKAGE / path).stat().st_mtime_ns
    test = tmp_path / "tests/test_planted.py"
    test.write_text(IN_A_PROCESS_OF_ITS_OWN, encoding="utf-8")
    names, source = ["tests/test_planted.py"], (ROOT / mutants.PACKAGE / path).read_text(encoding="utf-8")
    assert worker.run(names) == ""
    for planted in (source.replace("len(self.eligible) - k", "len(self.eligible) + k"), "raise ImportError"):
        with worker.changed(path, planted):
            assert worker.run(names) == "tests/test_planted.py::test_a_count"
    test.write_text("def test_for_ever():\n    while True: pass\n", encoding="utf-8")
    assert worker.run(names, limit=3) == "the limit of 3 s"
    assert (tmp_path / mutants.PACKAGE / path).stat().st_mtime_ns == before


def test_the_help_says_what_it_is() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools/mutants.py"), "--help"], capture_output=True, check=True)
    assert b"one small change at a time" in done.stdout
