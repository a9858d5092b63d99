"""Change the core one small change at a time and run the tests of its room: `make mutants`.

Each worker has a copy of this checkout, whose compiled code stays valid, and changes one file of it at a time. A mutant
is noticed if a test fails, or if the tests take far longer than without it. One that survives has to be in
``tests/mutants.toml``, with the reason why no test can notice it.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from mutations import Mutant, mutants_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["ROOMS", "Known", "Outcome", "Worker", "complaints_about", "find_mutants", "main", "read_known"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "service/topk_bandit"
SURVIVORS = "tests/mutants.toml"

_MODEL = "bandits/test_recorded_log bandits/test_recommender bandits/test_replay"
_LIVES = "bandits/test_features bandits/test_item_features bandits/test_places bandits/test_imports bandits/test_reset"
_MEMORY = "contracts/test_store_contract.py::TestMemoryStore"
_SERVER = "contracts/test_store_contract.py::TestValkeyCluster store/test_stores_agree store/test_closed_bytes"
_SCRIPTS = ("bandit/commit", "bandit/forget_closed", "bandit/read_due", "bandit/read", "closed", "filing")

ROOMS: Mapping[str, str] = {
    "learning/propensities.py": """
        learning/test_propensities learning/test_falling_shares bandits/test_answers learning/test_decide
        learning/test_ruled_propensities""",
    "learning/search.py": """
        learning/test_search learning/test_long_slates learning/test_top_slates bandits/test_answers
        learning/test_decide learning/test_thompson""",
    "learning/decisions.py": f"""
        learning/test_falling_shares bandits/test_answers learning/test_item_draws learning/test_decide
        learning/test_thompson learning/test_content learning/test_prior_mean learning/test_search
        learning/test_believing_policy learning/test_stand_ins learning/test_ruled_search bandits/test_large_catalogue
        {_MODEL}""",
    "learning/policy.py": f"""
        learning/test_policy learning/test_ageing learning/test_corrections learning/test_digests
        learning/test_times learning/test_robust_ranges learning/test_judged_observations learning/test_feature_shares
        learning/test_mean_parts learning/test_no_rows_left learning/test_noticed_changes learning/test_content
        learning/test_prior_mean learning/test_item_parts learning/test_believing_policy bandits/test_corrections
        learning/test_folded_rewards learning/test_shop_priors learning/test_calibration learning/test_item_feedback
        learning/test_magnitudes {_LIVES}""",
    "learning/corrections.py": f"""
        learning/test_corrections learning/test_folded_rewards learning/test_judged_observations
        learning/test_item_feedback learning/test_wild_outcomes learning/test_magnitudes bandits/test_corrections
        {_LIVES}""",
    "learning/state_changes.py": f"""
        learning/test_policy learning/test_times learning/test_content learning/test_prior_mean
        learning/test_item_parts learning/test_believing_policy learning/test_item_feedback learning/test_calibration
        {_LIVES}""",
    "learning/posterior.py": """
        learning/test_posterior learning/test_posterior_values learning/test_corrections learning/test_digests
        learning/test_context_posterior learning/test_rotations learning/test_hyperparameters
        learning/test_mean_parts learning/test_no_rows_left learning/test_observed_rows learning/test_prior_mean
        learning/test_content learning/test_item_parts learning/test_policy properties/test_posterior_properties
        learning/test_folded_rewards learning/test_uncertain_prior_mean learning/test_thompson learning/test_calibration
        learning/test_item_feedback""",
    "learning/slate_rules.py": "learning/test_slate_rules learning/test_ruled_search domain/test_rules",
    "learning/item_table.py": "learning/test_item_table learning/test_slate_rules bandits/test_catalogue",
    "learning/relaxed_rules.py": "learning/test_relaxed_rules",
    "learning/near_slates.py": "learning/test_propensities learning/test_ruled_propensities",
    "learning/allowed_slates.py": "learning/test_allowed_slates learning/test_ruled_propensities",
    "domain/filters.py": "domain/test_filters",
    "store/visits.py": "bandits/test_frequencies",
    "bandits/showable.py": "bandits/test_rules bandits/test_repeated_rules bandits/test_frequencies",
    "bandits/absences.py": "bandits/test_rules bandits/test_frequencies",
    "bandits/exposures.py": "bandits/test_exposures",
    "bandits/catalogue.py": "bandits/test_catalogue bandits/test_rules",
    "bandits/log_retention.py": "bandits/test_log_retention bandits/test_cold_writer",
    "bandits/cold_writer.py": "bandits/test_cold_writer",
    "store/cold_log.py": "store/test_cold_log bandits/test_cold_writer",
    "store/event_index.py": "store/test_cold_log",
    "store/event_keys.py": "store/test_event_keys store/test_cold_log",
    "store/whole_logs.py": "bandits/test_whole_logs",
    "learning/folded_rewards.py": "learning/test_folded_rewards",
    "learning/item_outcomes.py": "learning/test_item_outcomes",
    "learning/exact_sums.py": "learning/test_exact_sums",
    "learning/group_totals.py": "learning/test_exact_sums",
    "learning/confidence_sequences.py": "learning/test_confidence_sequences",
    "learning/lift.py": "learning/test_lift learning/test_guardrails",
    "learning/sample_ratio.py": "learning/test_sample_ratio",
    "learning/guardrails.py": "learning/test_guardrails",
    "learning/conservative.py": "learning/test_conservative",
    "learning/holdouts.py": "learning/test_holdouts commands/test_holdout",
    "bandits/reward_curve.py": "bandits/test_reward_times",
    "bandits/fold.py": f"""
        {_MODEL} bandits/test_activation bandits/test_corrections bandits/test_skips bandits/test_features
        bandits/test_item_features bandits/test_priors bandits/test_places bandits/test_imports
        bandits/test_unknown_outcomes bandits/test_history bandits/test_digests bandits/test_reset
        bandits/test_set_aside bandits/test_capacity bandits/test_snapshots bandits/test_provisional
        bandits/test_selection bandits/test_reward_times bandits/test_item_values bandits/test_stages""",
    "bandits/model.py": f"""
        {_MODEL} bandits/test_history bandits/test_digests bandits/test_reset bandits/test_set_aside
        bandits/test_snapshots bandits/test_selection bandits/test_reward_times bandits/test_regret_units
        bandits/test_corrections bandits/test_features""",
    "bandits/choices.py": """
        bandits/test_answers bandits/test_recommender bandits/test_candidates bandits/test_features
        bandits/test_stages bandits/test_replay bandits/test_rules bandits/test_exposures bandits/test_conservative""",
    "bandits/batches.py": "bandits/test_batches",
    "bandits/recommender.py": """
        bandits/test_answers bandits/test_recommender bandits/test_activation bandits/test_candidates
        bandits/test_corrections bandits/test_unknown_outcomes bandits/test_tenant_quotas bandits/test_set_aside
        bandits/test_large_catalogue bandits/test_open_slates bandits/test_features bandits/test_replay
        bandits/test_item_values bandits/test_stages bandits/test_batches bandits/test_repeated_rules
        bandits/test_frequencies rpc/test_recommender_service""",
    "bandits/restored_events.py": """
        bandits/test_restored_events bandits/test_restores rpc/test_forged_archives""",
    "store/restores.py": f"bandits/test_restores {_MEMORY} rpc/test_forged_archives",
    "store/memory/bandits.py": f"{_MEMORY} store/test_stores_agree bandits/test_restores",
    "store/rules/slates.py": f"{_MEMORY} store/test_stores_agree store/test_redis_store bandits/test_stages",
    "store/rules/provisional.py": f"store/test_provisional_rules {_MEMORY} bandits/test_restores",
    "store/journaled.py": f"{_MEMORY} store/test_journaled store/test_redis_store",
    "store/rules/bandits.py": f"store/test_bandit_rules {_MEMORY} store/test_stores_agree",
    "store/rules/imports.py": f"{_MEMORY} contracts/test_study_contract",
    "studies/link_questions.py": "studies/test_links",
    "studies/links.py": "studies/test_links rpc/test_links",
    "store/rules/studies.py": "contracts/test_study_contract store/test_study_stores_agree studies/test_studies",
    "store/redis/fields.py": _SERVER,
    "store/redis/records.py": _SERVER,
    **{f"store/redis/lua/{name}.lua": _SERVER for name in _SCRIPTS},
}
"""The modules that are changed, and the tests that have to notice it: what most likely does, and quickly, is first."""

MOST_TIMES, LEAST_SECONDS = 10, 300
"""A mutant may take so many times as long as its tests do without it, and so long at least; then it is noticed."""

PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "-m", "not slow and not processors")


class Outcome(NamedTuple):
    """What came of a mutant: the test that noticed it first, empty if none did."""

    mutant: Mutant
    noticed_by: str
    seconds: float


def find_mutants(path: str) -> list[Mutant]:
    """Return all mutants of a module, whose path is below the package."""
    return mutants_of(path, (ROOT / PACKAGE / path).read_text(encoding="utf-8"))


def tests_of(path: str) -> list[str]:
    """Return what pytest is given for a module."""
    return [f"tests/{name}" if "::" in name else f"tests/{name}.py" for name in ROOMS[path].split()]


@dataclass(frozen=True, slots=True)
class Worker:
    """A copy of the checkout, in which one file at a time is changed.

    Attributes
    ----------
    folder
        Of the copy.
    """

    folder: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Worker:
        """Copy what the checkout has, committed or not, and what was compiled of the service."""
        shutil.copytree(ROOT / "service", folder / "service")
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"],  # noqa: S607 - whichever git there is
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file() and not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        return cls(folder)

    def run(self, tests: Sequence[str], *, limit: float | None = None) -> str:
        """Return the first test that fails in the copy, empty if all pass."""
        environment = os.environ | {"PYTHONPATH": str(self.folder / "service")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryFile("w+") as printed:
            pytest = subprocess.Popen(
                [sys.executable, *PYTEST, *tests],
                cwd=self.folder,
                env=environment,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                if pytest.wait(limit) == 0:
                    return ""
            except subprocess.TimeoutExpired:
                return f"the limit of {limit:.0f} s"
            finally:
                _end(pytest)
            printed.seek(0)
            return _first_failure(printed.read())

    @contextmanager
    def changed(self, path: str, text: str) -> Iterator[None]:
        """Have a module be another in the copy."""
        file = self.folder / PACKAGE / path
        before, times = file.read_text(encoding="utf-8"), file.stat()
        file.write_text(text, encoding="utf-8")
        # Bytecode is valid for a size and a second: no two changes may have both.
        os.utime(file, (times.st_atime, next(_seconds)))
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def try_out(self, mutant: Mutant, tests: Sequence[str], *, limit: float) -> Outcome:
        """Return whether the tests notice a mutant."""
        start = time.monotonic()
        with self.changed(mutant.path, mutant.text):
            noticed_by = self.run(tests, limit=limit)
        return Outcome(mutant, noticed_by, time.monotonic() - start)


_seconds = iter(range(1_000_000_000, 2_000_000_000))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started and left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _first_failure(printed: str) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    return found[1] if found else (printed.strip().splitlines() or ["nothing that it printed"])[-1]


class Crew:
    """Workers, each of which does one thing at a time."""

    def __init__(self, workers: Sequence[Worker], console: Console) -> None:
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            self._free.put(worker)
        self._count, self._console = len(workers), console
        self._seconds: dict[str, float] = {}

    def measure(self, tests: Iterable[str]) -> None:
        """Run tests without any change: they have to pass, and how long they take limits what mutants may take."""
        with ThreadPoolExecutor(self._count) as pool, Progress(console=self._console) as progress:
            names = sorted(set(tests))
            for name, seconds in progress.track(zip(names, pool.map(self._measure, names), strict=True), len(names)):
                self._seconds[name] = seconds

    def _measure(self, name: str) -> float:
        worker, start = self._free.get(), time.monotonic()
        failed = worker.run([name])
        self._free.put(worker)
        if failed:
            raise SystemExit(f"without any change {failed} fails")
        return time.monotonic() - start

    def check_imports(self, path: str) -> None:
        """Check that the tests of a module, and what they start, import what a worker changes."""
        worker = self._free.get()
        planted = "raise ImportError('planted')\n"
        with worker.changed(path, planted):
            noticed_by = worker.run(tests_of(path)[:1])
        self._free.put(worker)
        if not noticed_by:
            raise SystemExit(f"{tests_of(path)[0]} does not import {path} from {worker.folder}")

    def judge(self, mutants: Sequence[Mutant]) -> Iterator[Outcome]:
        """Return what comes of mutants, one after the other."""
        with ThreadPoolExecutor(self._count) as pool, Progress(console=self._console) as progress:
            yield from progress.track(pool.map(self._judge, mutants), len(mutants))

    def _judge(self, mutant: Mutant) -> Outcome:
        worker, tests = self._free.get(), tests_of(mutant.path)
        limit = max(MOST_TIMES * sum(self._seconds[name] for name in tests), LEAST_SECONDS)
        outcome = worker.try_out(mutant, tests, limit=limit)
        self._free.put(worker)
        return outcome


class Known(NamedTuple):
    """What is known of mutants: the change of each that survives, by its id, and modules of which all were tried."""

    survivors: Mapping[str, str]
    complete: Sequence[str]


def read_known() -> Known:
    """Return what ``tests/mutants.toml`` says."""
    listed = tomllib.loads((ROOT / SURVIVORS).read_text(encoding="utf-8"))
    return Known({one["id"]: one["change"] for one in listed["survivor"]}, listed["complete"])


def complaints_about(known: Mapping[str, str], mutants: Iterable[Mutant]) -> list[str]:
    """Return what is wrong with the list of survivors: those that are no mutants any more."""
    changes = {mutant.id: mutant.change for mutant in mutants}
    return [f"{name} is no mutant any more" for name, change in known.items() if changes.get(name) != change]


def choose(mutants: Sequence[Mutant], known: Known, options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to try: all, those that are asked for, or some at random; of one module for a sample.

    A sample is of a module all of whose mutants were tried: any that survives is new there.
    """
    rng = random.Random(options.seed)  # noqa: S311 - no secret
    wanted = [one for one in mutants if options.only in one.id]
    if options.sample:
        path = rng.choice(known.complete)
        wanted = [one for one in wanted if one.path == path and one.id not in known.survivors]
    if options.count:
        wanted = rng.sample(wanted, min(options.count, len(wanted)))
    return wanted


def report(outcomes: Sequence[Outcome], known: Mapping[str, str], console: Console) -> list[Outcome]:
    """Print how many mutants of each module were noticed, and return the survivors that nobody knows."""
    table = Table("module", "mutants", "noticed", "survived", "of these listed")
    survivors = [one for one in outcomes if not one.noticed_by]
    tried = Counter(one.mutant.path for one in outcomes)
    lived = Counter(one.mutant.path for one in survivors)
    listed = Counter(one.mutant.path for one in survivors if one.mutant.id in known)
    for path in sorted(tried):
        counts = tried[path], tried[path] - lived[path], lived[path], listed[path]
        table.add_row(path, *map(str, counts))
    table.add_row("all", *map(str, (tried.total(), tried.total() - lived.total(), lived.total(), listed.total())))
    console.print(table)
    return [one for one in survivors if one.mutant.id not in known]


def line_of(outcome: Outcome) -> str:
    """Return one line about a mutant."""
    mutant = outcome.mutant
    told = f"noticed by {outcome.noticed_by}" if outcome.noticed_by else "SURVIVED"
    place = f"{PACKAGE}/{mutant.path}:{mutant.line}"
    return f"{outcome.seconds:4.0f} s  {place}  {mutant.change}  [{mutant.id}]  {told}"


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=0, help="how many mutants to try, drawn at random (default: all)")
    parser.add_argument("--seed", default="0", help="of what is drawn")
    parser.add_argument("--only", default="", help="try mutants with this text in their id alone")
    parser.add_argument("--sample", action="store_true", help="draw from one complete module, and none that is listed")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Try mutants, and return 1 if one survives that is not listed, or one that is listed is none."""
    options, console = parse(words), Console(soft_wrap=True, highlight=False, markup=False)
    known, mutants = read_known(), [one for path in ROOMS for one in find_mutants(path)]
    problems = complaints_about(known.survivors, mutants)
    chosen = choose(mutants, known, options)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        workers = [Worker.in_folder(Path(folder) / str(number)) for number in range(options.workers)]
        outcomes = try_all(Crew(workers, console), chosen, console)
    problems += [f"new: {line_of(one)}" for one in report(outcomes, known.survivors, console)]
    console.print(*problems, sep="\n")
    return int(bool(problems))


def try_all(crew: Crew, chosen: Sequence[Mutant], console: Console) -> list[Outcome]:
    """Return what came of the mutants, each printed as soon as it is known."""
    paths = sorted({one.path for one in chosen})
    crew.measure(name for path in paths for name in tests_of(path))
    for path in paths[:1]:
        crew.check_imports(path)
    outcomes = []
    for outcome in crew.judge(chosen):
        console.print(line_of(outcome))
        outcomes.append(outcome)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
