"""What is deployed: Prometheus's own checks of its configuration, and the few facts on which the parts must agree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.programs import find_program
from tests.rpc.certificates import write_pair
from tests.rpc.keys import ring
from tests.waiting import PATIENCE

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.compiled_code import AHEAD_VARIABLE, CACHE_VARIABLE
from topk_bandit.process.fleet_metrics import Fleet, render
from topk_bandit.process.listeners import check_listeners
from topk_bandit.process.metrics import Metrics
from topk_bandit.process.metrics_page import MetricsServer
from topk_bandit.process.settings import Settings, add_arguments, load
from topk_bandit.rpc.keys import print_keys

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


def promtool(*arguments: str) -> None:
    program = find_program("promtool")
    run = subprocess.run([program, *arguments], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def instructions() -> list[list[str]]:
    """Return the Containerfile's instructions, with continued lines joined."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    return [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_a_linter_of_images_finds_nothing() -> None:
    command = [Path(sys.executable).with_name("hadolint"), "--no-color", DEPLOY / "Containerfile"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


def last(instruction: str) -> str:
    return [rest for word, rest in instructions() if word == instruction][-1]


def environment() -> dict[str, str]:
    """Return the variables of the image."""
    return dict(pair.split("=", 1) for word, rest in instructions() if word == "ENV" for pair in rest.split())


def compose(name: str = "compose.yaml") -> dict[str, dict[str, list[str]]]:
    """Return the sections of a compose file: each entry's lines, without their indentation."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in (DEPLOY / name).read_text().splitlines():
        if not line.strip() or line.strip().startswith("#"):
            continue
        assert "\t" not in line
        indent = len(line) - len(line.lstrip())
        assert indent % 2 == 0
        if indent == 0:
            section = sections.setdefault(line.partition(":")[0], {})
        elif indent == 2:
            entry = section.setdefault(line.strip().removesuffix(":"), [])
        else:
            entry.append(line.strip())
    return sections


def test_prometheus_takes_its_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


def test_prometheus_takes_the_rules() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", "rules/topk-bandit.rules.yml")


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_none_when_all_is_well() -> None:
    promtool("test", "rules", "rules/topk-bandit.test.yml", "rules/topk-bandit.weeks.test.yml")


RULES = (DEPLOY / "rules/topk-bandit.rules.yml").read_text()
RULE_TESTS = "".join((DEPLOY / f"rules/topk-bandit.{name}.yml").read_text() for name in ("test", "weeks.test"))
RUNBOOKS = (ROOT / "docs/runbooks.md").read_text()
ALERTS = re.findall(r"alert: (\w+)", RULES)
METRIC = r"(?<![:\w])(?:topk_bandit|grpc_server|process)_[a-z_]+(?![:\w])"


def rule(name: str) -> str:
    """Return the lines of one rule."""
    return next(part for part in re.split(r"\n(?= *- (?:alert|record|name): )", RULES) if part.split()[2:3] == [name])


def metrics_of(name: str) -> set[str]:
    """Return the metrics that a rule is made of, through the rules that it names."""
    expression = rule(name).split("labels:")[0].split("annotations:")[0].partition("expr:")[2]
    recorded = set(re.findall(r"\w+:\w+:\w+", expression))
    return set(re.findall(METRIC, expression)).union(*map(metrics_of, recorded))


def well() -> str:
    """Return the test of the rules in which all is well."""
    return re.split(r"\n  - name: ", RULE_TESTS)[1]


def test_there_are_alerts_and_each_has_its_own_name() -> None:
    assert len(set(ALERTS)) == len(ALERTS) > 20


def test_every_alert_has_a_test_of_its_firing_and_one_of_its_silence() -> None:
    fires = {alert: rf'labels: .*alertname="{alert}".*\n +value: 1' for alert in ALERTS}
    assert [alert for alert in ALERTS if not re.search(fires[alert], RULE_TESTS)] == []
    # Its silence tells something only where there is what it looks at.
    given = set(re.findall(r"series: (\w+)", well()))
    assert {alert: lacking for alert in ALERTS if (lacking := (metrics_of(alert) or {"up"}) - given)} == {}
    assert "expr: ALERTS\n" in well()


def test_every_alert_has_a_runbook_and_names_it() -> None:
    for alert in ALERTS:
        entry = re.search(rf"^### {alert}\n(.*?)(?=^##|\Z)", RUNBOOKS, re.MULTILINE | re.DOTALL)
        assert entry is not None, alert
        for part in ("Means", "Look at", "Do"):
            assert len(re.findall(rf"^- \*\*{part}:\*\* \S", entry[1], re.MULTILINE)) == 1, (alert, part)
        assert f"runbook_url: docs/runbooks.md#{alert.lower()}\n" in rule(alert) + "\n", alert
        assert "summary: " in rule(alert), alert
        assert re.search(r"labels: \{severity: (page|ticket)\}", rule(alert)), alert


def test_the_runbooks_say_which_real_fault_makes_each_alert_fire() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| .+ \| (.+) \|$", RUNBOOKS, re.MULTILINE)
    assert sorted(f"TopkBandit{name}" for name, _, _ in rows) == sorted(ALERTS)
    for name, anchor, files in rows:
        assert anchor == f"topkbandit{name}".lower()
        modules = re.findall(r"`(test_\w+)\.py`", files)
        assert modules == [module for module in FAULT_MODULES if name in fired_by(module)], name


FAULT_MODULES = sorted(path.stem for path in (ROOT / "tests/faults").glob("test_alerts*.py"))


def fired_by(module: str) -> set[str]:
    """Return the alerts, without "TopkBandit", that the faults of a module of `tests/faults` have fire."""
    return {alert for fault in import_module(f"tests.faults.{module}").FAULTS for alert in fault.alerts}


def test_runbooks_are_about_alerts_and_panels_that_exist() -> None:
    assert re.findall(r"^### (\w+)$", RUNBOOKS, re.MULTILINE) == [
        alert for alert in re.findall(r"^### (\w+)$", RUNBOOKS, re.MULTILINE) if alert in ALERTS
    ]
    assert set(re.findall(r"\(#(\w+)\)", RUNBOOKS)) <= {alert.lower() for alert in ALERTS}
    titles = {panel["title"] for board in dashboards().values() for panel in panels(board)}
    asked = set(re.findall(r"\*([A-Z][^*]+\?)\*", " ".join(RUNBOOKS.split())))
    assert len(asked) > 10
    assert asked <= titles


@pytest.mark.parametrize("name", ["topk-bandit.rules.yml", "topk-bandit.test.yml"])
def test_the_rules_know_only_metrics_that_exist(name: str) -> None:
    used = set(re.findall(METRIC, (DEPLOY / "rules" / name).read_text()))
    assert len(used) > 5
    assert used <= existing_metrics()


def test_the_dashboards_know_only_metrics_that_exist() -> None:
    for name, board in dashboards().items():
        used = set(re.findall(METRIC, json.dumps(board["panels"])))
        assert len(used) > 5, name
        assert used <= existing_metrics(), name


def existing_metrics() -> set[str]:
    """Return the names of all series that a service can have."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, methods=[("service", "Recommend")], tenants=["acme"])
    metrics.store_called("record_reward", 0.001, failed=True)
    metrics.rpc_handled("service", "Recommend", "OK", 0.001)
    metrics.rpc_done(0.001, 0.001)
    metrics.designed("ready", 0.001)
    with tempfile.TemporaryDirectory() as folder:
        fleet = render(Path(folder), lambda: Fleet(workers=1, ready=1, processes={"supervisor": os.getpid()}))
    text = generate_latest(registry).decode() + fleet.decode()
    return {name for name in re.findall(r"^([a-z_]+)[{ ]", text, re.MULTILINE) if not name.endswith("_created")}


def test_every_metric_is_told_of_and_no_other() -> None:
    table = (ROOT / "docs/operations.md").read_text()
    told = set(
        re.findall(
            r"`((?:topk_bandit|grpc_server|process)_[a-z_]+)",
            table.partition("## Metrics")[2].partition("## Memory")[0],
        )
    )
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in existing_metrics()}
    assert told == families


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards by their files' names."""
    return {path.stem: json.loads(path.read_text()) for path in (DEPLOY / "grafana/dashboards").glob("*.json")}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def test_the_dashboards_are_those_of_their_description() -> None:
    command = [sys.executable, str(ROOT / "tools/dashboards.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_dashboard_that_is_out_of_date_is_named(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(DEPLOY / "grafana", tmp_path / "deploy/grafana")
    (tmp_path / "deploy/grafana/dashboards/service.json").write_text("{}")
    command = [sys.executable, str(tmp_path / "tools/dashboards.py")]
    done = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (
        1,
        "deploy/grafana/dashboards/service.json is out of date: run make dashboards\n",
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert subprocess.run([*command, "--check"], capture_output=True, check=False).returncode == 0


def test_every_panel_says_what_it_shows_in_which_unit_and_stands_alone() -> None:
    boards = dashboards()
    assert set(boards) == {"learning", "service", "store-and-fleet"}
    assert len({board["uid"] for board in boards.values()}) == 3
    for board in boards.values():
        places: set[tuple[int, int]] = set()
        for panel in panels(board):
            assert len(panel["description"]) > 30, panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["targets"], panel["title"]
            at = panel["gridPos"]
            here = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert at["x"] + at["w"] <= 24
            assert not here & places, panel["title"]
            places |= here
        titles = [panel["title"] for panel in panels(board)]
        assert len(set(titles)) == len(titles)
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_grafana_is_given_the_dashboards_and_where_prometheus_is() -> None:
    provisioning = DEPLOY / "grafana/provisioning"
    source = (provisioning / "datasources/prometheus.yml").read_text()
    assert "url: http://prometheus:9090" in source
    uid = re.search(r"uid: (\S+)", source)
    assert uid is not None
    assert all(board["templating"]["list"][0]["current"]["value"] == uid[1] for board in dashboards().values())
    provider = (provisioning / "dashboards/topk-bandit.yml").read_text()
    folder = re.search(r"path: (\S+)", provider)
    assert folder is not None
    # Without it Prometheus drops the exemplars that two of the panels show.
    assert "- --enable-feature=exemplar-storage" in compose()["services"]["prometheus"]
    mounts = [line.removeprefix("- ").split(":") for line in compose()["services"]["grafana"] if line.endswith(":ro")]
    assert ["./grafana/dashboards", folder[1], "ro"] in mounts
    assert ["./grafana/provisioning", "/etc/grafana/provisioning", "ro"] in mounts


def test_the_image_takes_settings_that_exist_and_listens_where_it_says() -> None:
    parser = ArgumentParser()
    add_arguments(parser)
    ours = {name: value for name, value in environment().items() if name.startswith("TOPK_BANDIT_")}
    settings = load(parser.parse_args([]), ours)
    assert settings.metrics_listen is not None
    assert settings.http_listen is not None
    listeners = (settings.listen, settings.http_listen, settings.metrics_listen)
    assert last("EXPOSE").split() == [str(listener.port) for listener in listeners]
    assert {listener.host for listener in listeners} == {"0.0.0.0"}
    assert f"http://127.0.0.1:{settings.metrics_listen.port}/readyz" in last("HEALTHCHECK")
    assert last("VOLUME") == str(settings.data_dir)
    assert settings.fsync == "always"


def test_the_image_runs_as_nobody_in_particular_and_gets_its_signals() -> None:
    assert last("USER").split(":")[0].isdigit()
    assert int(last("USER").split(":")[0]) > 0
    assert json.loads(last("ENTRYPOINT")) == ["topk-bandit", "serve"]
    assert any("--require-hashes" in rest and "requirements/runtime.lock" in rest for _, rest in instructions())


def test_what_the_image_compiled_is_for_all_and_changed_by_none() -> None:
    """Who builds the image is root, so that nobody who runs it can write where its compiled code is."""
    words = [word for word, _ in instructions()]
    assert words.index("USER") > len(words) - words[::-1].index("RUN") - 1
    variables, argument = environment(), last("ARG")
    assert variables["NUMBA_CPU_NAME"] == f"${argument.partition('=')[0]}"
    ahead, kept = variables[AHEAD_VARIABLE], variables[CACHE_VARIABLE]
    assert last("RUN").startswith(f"export {CACHE_VARIABLE}=${AHEAD_VARIABLE} ")
    assert f"chmod -R a+rX {Path(ahead).parent} " in last("RUN")
    assert not Path(ahead).is_relative_to(kept), "a volume for compiled code would hide what the image has"
    assert {"read_only: true", "tmpfs: [/tmp]"} <= set(compose()["services"]["topk-bandit"])


def test_where_the_image_cannot_be_built_its_check_says_so_and_passes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools/image_check.py")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"The image is not checked here: (it needs root|buildah, .* not installed)\.\n", done.stdout)


@pytest.mark.parametrize("ready", [True, False])
def test_the_health_check_passes_when_the_service_is_ready(ready: bool) -> None:  # noqa: FBT001
    program, *arguments = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert program == "python"
    with MetricsServer(0, host="127.0.0.1", render=lambda _: b"", ready=lambda: ready) as server:
        here = {":9464/": f":{server.port}/", "timeout=2": f"timeout={PATIENCE}"}
        for theirs, ours in here.items():
            assert theirs in arguments[-1]
            arguments[-1] = arguments[-1].replace(theirs, ours)
        done = subprocess.run([sys.executable, *arguments], capture_output=True, check=False, timeout=PATIENCE)
        assert done.returncode == (0 if ready else 1), done.stderr


def test_compose_joins_parts_that_exist() -> None:
    sections = compose()
    assert set(sections) == {"name", "services", "volumes"}
    assert set(sections["services"]) == {"topk-bandit", "valkey", "prometheus", "grafana"}
    service = sections["services"]["topk-bandit"]
    assert "dockerfile: deploy/Containerfile" in service
    assert all(any(line.startswith("image: ") for line in lines) for lines in sections["services"].values())
    mounts = [line for lines in sections["services"].values() for line in lines if re.match(r"- (\./)?[\w./]+:/", line)]
    for mount in mounts:
        source = mount.removeprefix("- ").partition(":")[0]
        assert source in sections["volumes"] or (DEPLOY / source).exists(), mount
    assert len(mounts) == 6
    assert 'targets: ["topk-bandit:9464"]' in (DEPLOY / "prometheus.yml").read_text()


def variables(service: list[str]) -> dict[str, str]:
    """Return the settings that a compose file gives to the service."""
    pairs = [line.partition(": ") for line in service if line.startswith("TOPK_BANDIT_")]
    return {name: value.strip('"') for name, _, value in pairs}


def loaded(given: dict[str, str]) -> Settings:
    """Return the settings of the image with others over them."""
    parser = ArgumentParser()
    add_arguments(parser)
    return load(parser.parse_args([]), {**environment(), **given})


def published(service: list[str]) -> list[str]:
    return [line.removeprefix("- ").strip('"') for line in service if re.fullmatch(r'- "[\d.:]+"', line)]


def test_the_image_alone_lets_nobody_in_without_keys_and_tls() -> None:
    with pytest.raises(ConfigurationError, match="can be reached from other machines"):
        check_listeners(loaded({}))


def test_compose_lets_everybody_in_on_this_machine_alone() -> None:
    service = compose()["services"]["topk-bandit"]
    settings = loaded(variables(service))
    check_listeners(settings)
    assert settings.insecure
    assert all(port.startswith("127.0.0.1:") for port in published(service))
    assert len(published(service)) == 2


def test_compose_with_keys_lets_in_who_has_one(tmp_path: Path) -> None:
    service = compose("compose.keys.yaml")["services"]["topk-bandit"]
    given = variables(service)
    (mount,) = [line.removeprefix("- ") for line in service if line.startswith("- ./")]
    source, inside, mode = mount.split(":")
    assert mode == "ro"
    assert f"/deploy/{source.removeprefix('./')}/" in (ROOT / ".gitignore").read_text().splitlines()
    certificate, private_key = write_pair(tmp_path)
    (tmp_path / "keys.json").write_text(print_keys(ring()))
    private_key.rename(tmp_path / "private-key.pem")
    here = {name: value.replace(inside, str(tmp_path)) for name, value in given.items()}
    assert certificate.parent == tmp_path
    settings = loaded({**variables(compose()["services"]["topk-bandit"]), **here})
    check_listeners(settings)
    assert not settings.insecure
    assert settings.keys_file is not None
    assert {port.rpartition(":")[2] for port in published(service)} == {"50051", "50080"}


def test_compose_gives_the_service_settings_that_exist() -> None:
    service = compose()["services"]["topk-bandit"]
    settings = loaded(variables(service))
    assert settings.redis_url == "redis://valkey:6379/0"
    grace = next(int(line.split()[1].removesuffix("s")) for line in service if line.startswith("stop_grace_period"))
    assert grace > settings.drain_seconds


def test_compose_keeps_every_acknowledged_write() -> None:
    words = [line.removeprefix("- ").strip('"') for line in compose()["services"]["valkey"]]
    options = dict(pairwise(words))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--save"] == ""
    assert "valkey:/data" in words


SERVE = """
import numpy as np
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.domain.bandits import Exploration, Kernel, PaperBeta
rng = np.random.default_rng(0)
state = State.initial(kernel_of(Kernel.CONVOLUTIONAL, 30, 4), context_dim=3, limits=Limits(rows=24, pending_rows=4))
items = np.arange(30, dtype=np.int32)
for number in range(120):
    context = rng.normal(size=3)
    exploration = Exploration(PaperBeta(0.1), uniform_share=float(number % 2))
    eligible = items if number % 3 else items[4:20]
    ranking = decide(state, exploration, context=context, eligible=eligible, rng=rng).ranking
    state = state.shown(str(number), context, ranking)
    if number % 5 == 4:
        state = state.closed(str(number - 1))
    elif number % 5 != 3:
        state = state.rewarded(str(number), context, ranking, reward=float(rng.normal()))
State.restore(state.posterior.kernel, state.refit().checkpoint, limits=state.limits)
"""


KNOWN = """
import sys
from numba.core.dispatcher import Dispatcher

def known():
    modules = [module for module in list(sys.modules.values()) if module.__name__.startswith("topk_bandit.")]
    found = [(module.__name__, name, one) for module in modules for name, one in vars(module).items()]
    return {(module, name): len(one.signatures) for module, name, one in found if isinstance(one, Dispatcher)}
"""


@pytest.mark.slow
def test_warming_compiles_all_that_serving_calls() -> None:
    """A loop that is called with other types than before, or for the first time, has one more signature."""
    words = re.findall(r'python -c "([^"]*warm_up[^"]*)"', last("RUN"))[0]
    steps = [KNOWN, words, "before = known()", SERVE, "after = known()", "assert len(before) > 5"]
    steps.append("assert after == before, {one: count for one, count in after.items() if count != before.get(one)}")
    subprocess.run([sys.executable, "-W", "error", "-c", "\n".join(steps)], check=True)
