"""Each model of `docs/preference-models.md` by each of its three doors: the library, the wire and the command."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.rpc.studies import FEATURES, study_server, utilities
from tests.waiting import PATIENCE

from topk_bandit.client import AnswerKind, Client, InvalidArgument, PastAnswer, PreferenceModel
from topk_bandit.commands.cli import main
from topk_bandit.domain.studies import MODELS_OF
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.held_out import compare_models
from topk_bandit.preferences.questions import QuestionPool
from topk_bandit.preferences.study_models import RatedLists, fit
from topk_bandit.preferences.tiers import TieredAnswers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rpc.harness import RunningServer

    from topk_bandit.preferences.study_models import StudyAnswers

PAGE = Path(__file__).parents[2] / "docs/preference-models.md"
IDS = [f"i{number}" for number in range(len(FEATURES))]
CELLS = [(kind, model) for kind in (AnswerKind.RANKING, AnswerKind.RATINGS) for model in MODELS_OF[kind]]
RATE = 0.3


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with study_server() as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.target, tenant="acme", timeout=PATIENCE) as made:
        yield made
        for study in made.list_studies():  # a tenant has a quota of them
            made.delete_study(study.name)


def drawn_lists() -> list[list[int]]:
    """Return lists of three items, each in the order of a Plackett-Luce draw."""
    rng, truth = np.random.default_rng(3), np.array(list(utilities().values()))
    lists = [rng.permutation(len(IDS))[:3] for _ in range(40)]
    return [rows[np.argsort(-(truth[rows] + rng.gumbel(size=3)))].tolist() for rows in lists]


def rate(row: list[int]) -> list[float]:
    return [round(4.0 + list(utilities().values())[item] + 0.1 * place, 3) for place, item in enumerate(row)]


def answers_of(kind: AnswerKind) -> tuple[QuestionPool, StudyAnswers, list[PastAnswer]]:
    """Return the same answers for the library and for the wire."""
    rows = drawn_lists()
    if kind is AnswerKind.RANKING:
        pool = QuestionPool.of(FEATURES, None, feedback=Feedback.RANKING)
        past = [PastAnswer([IDS[item] for item in row]) for row in rows]
        return pool, TieredAnswers.of([[[item] for item in row] for row in rows], n_items=len(IDS)), past
    pool = QuestionPool.of(FEATURES, None, feedback=Feedback.RATING)
    # The service keeps the items of an answer in the study's order.
    in_order = [sorted(zip(row, rate(row), strict=True)) for row in rows]
    lists, values = ([[one[part] for one in row] for row in in_order] for part in (0, 1))
    past = [PastAnswer({IDS[item]: value for item, value in row}) for row in in_order]
    return pool, RatedLists(lists, values, len(IDS)), past  # type: ignore[arg-type]


def write_files(folder: Path, past: list[PastAnswer]) -> list[str]:
    """Write items and answers, and return the words that name them."""
    with (folder / "items.csv").open("w", newline="") as file:
        rows = [[one, *map(repr, row)] for one, row in zip(IDS, FEATURES.tolist(), strict=True)]
        csv.writer(file).writerows([["item", *"abcdefgh"[: FEATURES.shape[1]]], *rows])
    is_rated = isinstance(past[0].answer, dict)
    columns = [f"{part}_{n}" for n in (1, 2, 3) for part in (("item", "rating") if is_rated else ("item",))]
    with (folder / "answers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for one in past:
            said = one.answer
            writer.writerow([cell for pair in said.items() for cell in pair] if isinstance(said, dict) else said)
    return [f"--items={folder / 'items.csv'}", f"--answers={folder / 'answers.csv'}", f"--out={folder}"]


def learned_by_command(folder: Path) -> dict[str, list[float]]:
    with (folder / "preferences.csv").open(newline="") as file:
        return {row["item"]: [float(row["utility"]), float(row["standard_deviation"])] for row in csv.DictReader(file)}


@pytest.mark.parametrize(("kind", "model"), CELLS)
def test_a_model_learns_the_same_by_library_wire_and_command(
    client: Client, tmp_path: Path, kind: AnswerKind, model: PreferenceModel
) -> None:
    pool, answers, past = answers_of(kind)
    is_stream = model.startswith("stream")
    found = fit(model, pool, answers, stream_rate=RATE if is_stream else None).utilities
    expected = {one: list(row) for one, *row in zip(IDS, found.mean, found.standard_deviation, strict=True)}

    study = f"{kind}-{model}"
    rate_of = {"stream_rate": RATE} if is_stream else {}
    settings = {"answer_kind": kind, "list_size": 3, "budget": 30, "model": model, **rate_of}
    client.create_study(study, dict(zip(IDS, FEATURES.tolist(), strict=True)), **settings)
    client.import_answers(study, past, import_id="all")
    learned = client.get_preferences(study)
    assert (learned.model, client.get_study(study).model) == (model, model)
    assert client.get_study(study).stream_rate == (RATE if is_stream else None)
    for one in learned.items:
        np.testing.assert_allclose([one.utility, one.standard_deviation], expected[one.id], rtol=1e-9, atol=1e-12)

    words = [f"--kind={kind}", f"--model={model}", *([f"--stream-rate={RATE}"] if is_stream else [])]
    assert main(["study", "learn", *words, *write_files(tmp_path, past)]) == 0
    for one, row in learned_by_command(tmp_path).items():
        np.testing.assert_allclose(row, expected[one], rtol=1e-4, atol=1e-5)


def test_the_table_of_the_page_has_each_model_that_answers_allow() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name: cells for name, cells in rows if name in set(PreferenceModel)}
    assert list(named) == list(PreferenceModel)
    for model, cells in named.items():
        assert f"`PREFERENCE_MODEL_{model.upper()}`" in cells
        assert f"`--model {model}`" in cells
        assert f"`PreferenceModel.{model.upper()}`" in cells
    assert {model for _, model in CELLS} == set(PreferenceModel)


@pytest.mark.parametrize("kind", [AnswerKind.RANKING, AnswerKind.RATINGS])
def test_models_are_compared_alike_by_library_wire_and_command(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: AnswerKind
) -> None:
    pool, answers, past = answers_of(kind)
    scores, count = compare_models(MODELS_OF[kind], pool, answers)
    study = f"compared-{kind}"
    client.create_study(study, dict(zip(IDS, FEATURES.tolist(), strict=True)), answer_kind=kind, list_size=3, budget=30)
    assert client.get_preferences(study, compare=True).scores == ()
    client.import_answers(study, past, import_id="all")
    learned = client.get_preferences(study, model=MODELS_OF[kind][1], compare=True, timeout=120.0)
    assert (learned.model, learned.compared_count) == (MODELS_OF[kind][1], count)
    assert [score.model for score in learned.scores] == [score.model for score in scores]
    for one, other in zip(learned.scores, scores, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-9)
        assert one.behind_standard_error == pytest.approx(other.behind_standard_error, abs=1e-9)
    assert client.get_preferences(study).scores == ()
    assert main(["study", "learn", f"--kind={kind}", "--compare", *write_files(tmp_path, past)]) == 0
    printed = capsys.readouterr().out
    assert f"{scores[0].model} explains the answers best." in printed
    assert all(f"{score.log_probability:+.4f}" in printed for score in scores)


def test_a_model_that_answers_do_not_allow_is_refused_by_name(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_study("taste", IDS, answer_kind="pair", budget=30, list_size=2)
    with pytest.raises(InvalidArgument, match="model"):
        client.get_preferences("taste", model="least_squares")
    with pytest.raises(InvalidArgument, match="model"):
        client.get_preferences("taste", model="oracle")
    with pytest.raises(InvalidArgument, match=r"study\.model"):
        client.create_study("other", IDS, answer_kind="pair", budget=30, model="least_squares")
    words = write_files(tmp_path, answers_of(AnswerKind.RANKING)[2])
    assert main(["study", "learn", "--model=least_squares", *words]) != 0
    assert "--model" in capsys.readouterr().err
    assert main(["study", "learn", "--stream-rate=1", *words]) != 0
    assert "--stream-rate" in capsys.readouterr().err


def test_a_study_that_names_the_usual_model_is_the_one_that_names_none(client: Client) -> None:
    client.create_study("usual", IDS, answer_kind="pair", budget=30)
    client.create_study("usual", IDS, answer_kind="pair", budget=30, model="plackett_luce")
    assert client.get_study("usual").model is PreferenceModel.PLACKETT_LUCE
