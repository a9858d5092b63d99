"""The experiments from the command to the files, as small as they go."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topk_bandit.commands.cli import main
from topk_bandit.lab.simulation import aggregation_growth, design_loss, warm_start

if TYPE_CHECKING:
    from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n"


def experiment(folder: Path, *words: str) -> int:
    return main(["experiment", *words, "--out", str(folder), "--processes=1"])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check_files(
    folder: Path, name: str, *, panels: int, methods: int, points: int, trials: int
) -> list[dict[str, str]]:
    """Check that all three files are there and whole; return the lines of the CSV."""
    lines = table(folder / f"{name}.csv")
    assert len(lines) == panels * methods * points
    assert len({line["panel"] for line in lines}) == panels
    assert len({line["method"] for line in lines}) == methods
    assert {line["trials"] for line in lines} == {str(trials)}
    assert all(np.isfinite(float(line["mean"])) for line in lines)
    spreads = {line["standard_error"] for line in lines}
    assert spreads == {""} if trials == 1 else min(map(float, spreads)) >= 0.0
    png = (folder / f"{name}.png").read_bytes()
    assert png.startswith(PNG)
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    assert width >= 900
    assert height >= 600
    stored = json.loads((folder / f"{name}.json").read_text())
    assert stored["experiment"] == name
    assert stored["trials"] == trials
    return lines


def rankings(path: Path, *, n_lists: int, size: int) -> Path:
    rng = np.random.default_rng(0)
    lines = ["list,item,position,x1,x2,x3"]
    for number in range(n_lists):
        features = rng.normal(size=(size, 3))
        order = np.argsort(-(features @ [2.0, -1.0, 0.0] + rng.gumbel(size=size)))
        lines += [f"q{number},i{i},{place},{','.join(map(str, features[i]))}" for place, i in enumerate(order)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_dope_in_the_source_s_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topk_bandit.lab.experiments.preference_plans.ANSWER_SETS", 1)
    folder = tmp_path / "new" / "folder"
    assert experiment(folder, "dope", "--trials=1", "--questions=5,20") == 0
    lines = check_files(folder, "dope", panels=4, methods=5, points=2, trials=1)
    assert [line["questions"] for line in lines[:2]] == ["5", "20"]
    assert lines[0]["panel"] == "ratings_drawn"
    assert lines[-1]["panel"] == "rankings_chosen"
    printed = capsys.readouterr().out
    assert "dope: 1 of 1 jobs\n" in printed
    assert "Rankings, questions chosen one by one: ranking loss" in printed
    assert "ours reaches with <= 65 % what uniform reaches with 20 (rankings, questions drawn): " in printed
    assert f"Wrote {folder / 'dope.png'}" in printed


def test_dope_on_one_s_own_rankings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[np.ndarray] = []
    losses = design_loss.ranking_losses

    def noted(number: int, **settings: object) -> np.ndarray:
        measured.append(losses(number, **settings))  # type: ignore[arg-type]
        return measured[-1]

    monkeypatch.setattr(design_loss, "ranking_losses", noted)
    data = rankings(tmp_path / "rankings.csv", n_lists=40, size=3)
    assert experiment(tmp_path, "dope", f"--data={data}", "--trials=3", "--questions=2,30") == 0
    lines = check_files(tmp_path, "dope", panels=2, methods=5, points=2, trials=3)
    assert {line["panel"] for line in lines} == {"rankings_drawn", "rankings_chosen"}
    values = np.array(measured)
    spread = np.sqrt(((values - values.mean(axis=0)) ** 2).sum(axis=0) / (3 - 1) / 3)
    assert [float(line["mean"]) for line in lines] == pytest.approx(values.mean(axis=0).reshape(-1), rel=1e-5)
    assert [float(line["standard_error"]) for line in lines] == pytest.approx(spread.reshape(-1), rel=1e-4, abs=1e-9)
    ours = [float(line["mean"]) for line in lines if line["method"] == "ours"]
    assert ours[1] < 0.5 * ours[0]
    settings = json.loads((tmp_path / "dope.json").read_text())["settings"]
    assert [settings[name] for name in ("data", "lists", "list_size", "features")] == ["rankings.csv", 40, 3, 3]


def test_dopewolfe_on_one_s_own_rankings_in_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyarrow import csv as arrow_csv  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    plain = rankings(tmp_path / "rankings.csv", n_lists=3, size=7)
    parquet.write_table(arrow_csv.read_csv(plain), tmp_path / "rankings.parquet")
    words = ("dopewolfe", "--trials=2", "--questions=3,200", "--list-sizes=2,4")
    assert experiment(tmp_path / "a", *words, f"--data={tmp_path / 'rankings.parquet'}") == 0
    lines = check_files(tmp_path / "a", "dopewolfe", panels=4, methods=4, points=2, trials=2)
    assert [line["metric"] for line in lines] == ["ranking_loss"] * 16 + ["ndcg"] * 16
    assert "no" not in capsys.readouterr().err
    assert experiment(tmp_path / "b", *words, f"--data={plain}") == 0
    assert (tmp_path / "a" / "dopewolfe.csv").read_bytes() == (tmp_path / "b" / "dopewolfe.csv").read_bytes()


def test_dopewolfe_of_a_hundred_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment(tmp_path, "dopewolfe", "--trials=2", "--questions=20,60", "--list-sizes=2") == 0
    check_files(tmp_path, "dopewolfe", panels=2, methods=4, points=2, trials=2)
    stored = json.loads((tmp_path / "dopewolfe.json").read_text())
    assert stored["settings"]["rank"] == 10
    support = stored["settings"]["support"]["K = 2"]
    assert 11 <= support["ours"] == support["m-medoids"] <= 55
    assert "random subsets where there are more: K = none." in capsys.readouterr().out


def test_graded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment(tmp_path, "graded", "--trials=2", "--list-sizes=2,3") == 0
    lines = check_files(tmp_path, "graded", panels=4, methods=3, points=2, trials=2)
    assert {line["items_of_a_list"] for line in lines} == {"2", "3"}
    assert "25 lists, three grades: ours lowest at every point" in capsys.readouterr().out


def test_aggregation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment(tmp_path, "aggregation", "--trials=1", "--items=6,8") == 0
    lines = check_files(tmp_path, "aggregation", panels=3, methods=4, points=2, trials=1)
    assert {line["items"] for line in lines} == {"6", "8"}
    assert {line["method"] for line in lines} == set(aggregation_growth.METHODS)
    assert "20% of the comparisons flipped: RABF, squared, does not grow with n" in capsys.readouterr().out


def test_warm_start(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    study = warm_start.Study(questions=4, list_size=3)
    small = partial(warm_start.WarmStart, n_items=8, slate_size=3, study=study)
    monkeypatch.setattr("topk_bandit.lab.experiments.service_plans.warm_start.WarmStart", small)
    assert experiment(tmp_path, "warm-start", "--trials=2", "--rounds=6") == 0
    lines = check_files(tmp_path, "warm-start", panels=1, methods=3, points=6, trials=2)
    regret = np.array([float(line["mean"]) for line in lines]).reshape(3, 6)
    assert (np.diff(regret, axis=1) >= 0.0).all()
    trials = [warm_start.trial(small(rounds=6), seed) for seed in range(2)]
    for row, name in zip(regret, ("warm", "cold", "shuffled"), strict=True):
        np.testing.assert_allclose(row, np.mean([np.cumsum(getattr(one, name)) for one in trials], axis=0), rtol=1e-5)
    assert "warm <= 0.6 x cold after 6 rounds: " in capsys.readouterr().out


def test_the_same_seed_gives_the_same_numbers(tmp_path: Path) -> None:
    data = rankings(tmp_path / "rankings.csv", n_lists=4, size=4)
    words = ("dopewolfe", "--trials=2", "--questions=5", "--list-sizes=2", f"--data={data}")
    for name, seed in (("one", 5), ("two", 5), ("other", 6)):
        assert experiment(tmp_path / name, *words, f"--seed={seed}") == 0
    one, two, other = ((tmp_path / name / "dopewolfe.csv").read_bytes() for name in ("one", "two", "other"))
    assert one == two
    assert one != other


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["dope", "--trials=0"], "argument --trials: expected at least 1, got '0'"),
        (["dope", "--questions=20,10"], "argument --questions: expected increasing numbers, got '20,10'"),
        (["dope", "--questions=ten"], "argument --questions: expected a whole number, got 'ten'"),
        (["dopewolfe", "--seed=-1"], "argument --seed: expected at least 0, got '-1'"),
        (["flight"], "invalid choice: 'flight'"),
    ],
)
def test_a_wrong_call_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        experiment(tmp_path, *words)
    assert stopped.value.code == 2
    assert problem in capsys.readouterr().err


def test_what_cannot_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "rankings.csv"
    data.write_text("list,item,position,x\nq,a,1,zero\nq,b,2,1\n")
    assert experiment(tmp_path, "dope", f"--data={data}") == 1
    assert capsys.readouterr().err == (
        f"topk-bandit: --data: {data.name}, line 2, column 'x': expected a finite number, got 'zero'\n"
    )
    assert experiment(data, "aggregation") == 1
    assert "rankings.csv can't be made: File exists" in capsys.readouterr().err
    assert experiment(tmp_path, "dopewolfe", f"--data={rankings(data, n_lists=2, size=3)}", "--list-sizes=4") == 1
    assert "subset_size" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dopewolfe.csv").mkdir()
    data = rankings(tmp_path / "rankings.csv", n_lists=4, size=4)
    words = ("dopewolfe", "--trials=1", "--questions=5", "--list-sizes=2", f"--data={data}")
    assert experiment(tmp_path, *words) == 1
    assert "can't be written to: Is a directory" in capsys.readouterr().err


def test_without_matplotlib_the_command_says_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert experiment(tmp_path / "none", "aggregation") == 1
    assert capsys.readouterr().err == (
        "topk-bandit: drawing figures needs matplotlib: pip install 'topk-bandit[experiments]'\n"
    )
    assert not (tmp_path / "none").exists()


def test_all_that_is_missing_is_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("matplotlib", "jinja2", "implicit"):
        monkeypatch.setitem(sys.modules, package, None)
    ratings = tmp_path / "ratings.txt"
    ratings.write_text("1,2,3\n")
    assert experiment(tmp_path / "none", "all", f"--ratings={ratings}") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "topk-bandit: this run can't begin, for 4 reasons:",
        "  drawing figures needs matplotlib: pip install 'topk-bandit[experiments]'",
        "  writing the report needs jinja2: pip install 'topk-bandit[experiments]'",
        "  factors of ratings needs implicit: pip install 'topk-bandit[ratings]'",
        "  --ratings: expected a folder or a file ending in .data, .dat, .csv, .zip, got 'ratings.txt'",
    ]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["figure-2", "--ratings=none.csv"], "none.csv can't be read: No such file or directory"),
        (["figure-2", "--factors=none.npz"], "none.npz can't be read: No such file or directory"),
        (["dope", "--data=none.csv"], "none.csv can't be read: No such file or directory"),
    ],
)
def test_a_missing_file_is_reported_before_anything_slow_is_imported(
    tmp_path: Path, words: list[str], problem: str
) -> None:
    code = (
        "import sys; from topk_bandit.commands.cli import main; status = main(sys.argv[1:]); "
        "assert not {'numba', 'scipy', 'matplotlib'} & sys.modules.keys(); sys.exit(status)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "experiment", *words, f"--out={tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (run.returncode, run.stdout, run.stderr) == (1, "", f"topk-bandit: {problem}\n")


def test_a_quick_look_at_one_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment(tmp_path, "aggregation", "--quick", "--items=6,8") == 0
    check_files(tmp_path, "aggregation", panels=3, methods=4, points=2, trials=2)
    assert "A quick look, with few trials and rounds: what is met or missed says little." in capsys.readouterr().out


def test_all_makes_again_what_is_not_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str) -> str:
        assert experiment(tmp_path, "all", "--only=figure-4", "--quick", *words) == 0
        return capsys.readouterr().out

    assert "written before" not in printed()
    assert "written before" in printed()
    (tmp_path / "figure-4.json").write_text("{")
    assert "written before" not in printed()
    (tmp_path / "figure-4.png").unlink()
    assert "written before" not in printed()
    assert "written before" not in printed("--seed=1")
    assert "--seed=1" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(("package", "purpose"), [("matplotlib", "drawing figures"), ("jinja2", "writing the report")])
def test_without_a_package_all_says_so_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str, purpose: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert experiment(tmp_path / "none", "all") == 1
    printed = capsys.readouterr().err
    assert printed == f"topk-bandit: {purpose} needs {package}: pip install 'topk-bandit[experiments]'\n"
    assert not (tmp_path / "none").exists()
