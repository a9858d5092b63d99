"""Manifests are what Kubernetes takes, and agree with image and settings; the unit is what systemd takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from argparse import ArgumentParser
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.programs import WAYS, find_program, leave_out

from topk_bandit.process.settings import Settings, add_arguments, load

DEPLOY = Path(__file__).parent.parent / "deploy"
OVERLAYS = ("single", "replicated", "cluster")
BALANCER = "envoy"
SHARING = OVERLAYS[1:]
"""Those whose pods share a store."""
VERSIONS = ("1.29.1", "1.37.0")
SECRETS = "/run/secrets"
EXPOSURE = 25
"""In tenths, as systemd counts it: 0 to 10 times ten."""


def render(overlay: str) -> dict[str, dict[str, Any]]:
    """Return what an overlay is made into, by kind."""
    made = list(yaml.safe_load_all(kustomized(overlay)))
    assert len({one["kind"] for one in made}) == len(made)
    return {one["kind"]: one for one in made}


@cache
def kustomized(overlay: str) -> str:
    program = find_program("kubectl")
    command = [program, "kustomize", str(DEPLOY / "kubernetes" / "overlays" / overlay)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unknown field" in run.stderr:
        leave_out("kubectl", WAYS["kubectl"])
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


@pytest.mark.parametrize("page", ["deploy/README.md", "docs/security.md"])
def test_the_secret_with_the_keys_has_the_file_that_the_pods_read(page: str) -> None:
    container = yaml.safe_load((DEPLOY / "kubernetes" / "base" / "deployment.yaml").read_text())["spec"]["template"]
    variables = {one["name"]: one.get("value") for one in container["spec"]["containers"][0]["env"]}
    name = Path(variables["TOPK_BANDIT_KEYS_FILE"]).name
    told = next(part for part in (DEPLOY.parent / page).read_text().split("\n\n") if "topk-bandit-keys" in part)
    assert re.findall(r"(?<!\.)keys\.\w+", told) == [name]


def pod(rendered: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = rendered["Deployment"]["spec"]["template"]["spec"]
    return found


def settings_of(container: dict[str, Any], secrets: Path) -> Settings:
    """Return the settings that a container starts with; a store's address stands for a secret, a folder for others."""
    variables = {one["name"]: one.get("value", "redis://store") for one in container["env"]}
    for name, value in variables.items():
        if value.startswith(SECRETS):
            variables[name] = value.replace(SECRETS, str(secrets))
            Path(variables[name]).parent.mkdir(exist_ok=True)
            Path(variables[name]).touch()
    parser = ArgumentParser()
    add_arguments(parser)
    image = [line.strip(" \\") for line in (DEPLOY / "Containerfile").read_text().splitlines()]
    of_image = dict(line.split("=", 1) for line in image if line.startswith("TOPK_BANDIT_"))
    return load(parser.parse_args([]), {**of_image, **variables})


def test_kubernetes_takes_every_object() -> None:
    import kubernetes_validate  # noqa: PLC0415 - takes seconds, which the other processes of a run need not spend

    objects = [made for overlay in (*OVERLAYS, BALANCER) for made in render(overlay).values()]
    alike = {json.dumps(made, sort_keys=True): made for made in objects}  # overlays share most of theirs
    for made in alike.values():
        for version in VERSIONS:
            kubernetes_validate.validate(made, version, strict=True)


def test_every_manifest_is_one_object_that_an_overlay_has() -> None:
    paths = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
    assert len(paths) > 10
    for path in paths:
        (made,) = yaml.safe_load_all(path.read_text())
        if path.name == "kustomization.yaml":
            listed = [*made["resources"], *(one["path"] for one in made.get("patches", ()))]
            beside = {one.name for one in path.parent.glob("*.yaml") if one != path}
            assert {one for one in listed if not one.startswith("../")} == beside, path
        else:
            assert made["kind"], path
            assert made["metadata"]["name"].startswith("topk-bandit"), path


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_runs_as_the_image_was_made_to(overlay: str, tmp_path: Path) -> None:
    inside = pod(render(overlay))
    (container,) = inside["containers"]
    settings = settings_of(container, tmp_path)
    listeners = (settings.listen, settings.http_listen, settings.metrics_listen)
    assert [one["containerPort"] for one in container["ports"]] == [one.port for one in listeners if one is not None]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert set(mounts.values()) == {one["name"] for one in inside["volumes"]}
    assert "/tmp" in mounts
    assert str(settings.data_dir) in mounts or settings.redis_url
    for file in (settings.keys_file, settings.tls_certificate, settings.tls_private_key):
        assert file is not None
        assert str(Path(file).parent).replace(str(tmp_path), SECRETS) in mounts
    pause = 5
    assert f"time.sleep({pause})" in container["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert inside["terminationGracePeriodSeconds"] > pause + settings.drain_seconds + 5
    assert settings.worker_memory_mib * settings.workers < 2048


def test_one_pod_owns_the_folder_of_its_store() -> None:
    deployment = render("single")["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_is_asked_whether_it_lives_and_whether_it_serves(overlay: str) -> None:
    (container,) = pod(render(overlay))["containers"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths["readiness"] != paths["liveness"]  # a pod that can't serve for a while need not be ended
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 60


@pytest.mark.parametrize("overlay", SHARING)
def test_several_pods_share_a_store_and_never_all_go(overlay: str, tmp_path: Path) -> None:
    rendered = render(overlay)
    (container,) = pod(rendered)["containers"]
    assert settings_of(container, tmp_path).redis_url
    assert "replicas" not in rendered["Deployment"]["spec"]  # the autoscaler's
    scaled = rendered["HorizontalPodAutoscaler"]["spec"]
    assert 2 <= scaled["minReplicas"] < scaled["maxReplicas"]
    assert [one["resource"]["name"] for one in scaled["metrics"]] == ["cpu"]
    labels = rendered["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        rendered["PodDisruptionBudget"]["spec"]["selector"],
        rendered["NetworkPolicy"]["spec"]["podSelector"],
        *(one["labelSelector"] for one in pod(rendered)["topologySpreadConstraints"]),
    ):
        assert selector["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("overlay", [*OVERLAYS, BALANCER])
def test_callers_need_one_label_and_no_other(overlay: str) -> None:
    (callers, *_) = render(overlay)["NetworkPolicy"]["spec"]["ingress"]
    assert callers["from"] == [{"podSelector": {"matchExpressions": [one_of("topk-bandit/caller", "true")]}}]


def one_of(label: str, value: str) -> dict[str, Any]:
    return {"key": label, "operator": "In", "values": [value]}


def test_the_balancer_is_a_caller_and_finds_what_its_pods_mount() -> None:
    rendered, service = render(BALANCER), render("replicated")
    inside = pod(rendered)
    (container,) = inside["containers"]
    name = rendered["ConfigMap"]["metadata"]["name"]
    assert name in {one.get("configMap", {}).get("name") for one in inside["volumes"]}
    made = yaml.safe_load(rendered["ConfigMap"]["data"][Path(container["args"][1]).name])
    (listener,), (cluster,) = made["static_resources"]["listeners"], made["static_resources"]["clusters"]
    assert listener["address"]["socket_address"]["port_value"] == container["ports"][0]["containerPort"]
    (group,) = cluster["load_assignment"]["endpoints"]
    called = group["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    told = service["Service"]
    assert called["address"] == f"{told['metadata']['name']}.{told['metadata']['namespace']}.svc"
    assert called["port_value"] in {one["port"] for one in told["spec"]["ports"]}
    files = set(re.findall(r"filename': '([^']+)/[^/']+'", str(made)))
    assert files <= {one["mountPath"] for one in container["volumeMounts"]}
    labels = rendered["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels["topk-bandit/caller"] == "true"
    (_, way) = rendered["NetworkPolicy"]["spec"]["egress"]
    assert way["to"] == [{"podSelector": {"matchExpressions": [one_of("app.kubernetes.io/name", "topk-bandit")]}}]
    for selector in (
        rendered["PodDisruptionBudget"]["spec"]["selector"],
        rendered["NetworkPolicy"]["spec"]["podSelector"],
    ):
        assert selector["matchLabels"].items() <= labels.items()
    assert labels["app.kubernetes.io/name"] != told["spec"]["selector"]["app.kubernetes.io/name"]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = find_program("systemd-analyze")
    unit = tmp_path / "topk-bandit.service"
    unit.write_text(
        (DEPLOY / "systemd" / unit.name).read_text().replace("/opt/topk-bandit/bin/topk-bandit", "/bin/true")
    )
    environment = {"PATH": os.environ["PATH"], "SYSTEMD_LOG_LEVEL": "warning"}
    for check in (["verify"], ["security", "--offline=true", f"--threshold={EXPOSURE}"]):
        run = subprocess.run([program, *check, str(unit)], capture_output=True, text=True, check=False, env=environment)
        assert run.returncode == 0, run.stdout + run.stderr
        assert str(unit) not in run.stderr
