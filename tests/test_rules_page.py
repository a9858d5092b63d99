"""The commands and the mistakes of the page about rules, as a shell and HTTP send them."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.service import Service, serving
from tests.programs import find_program
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parent.parent / "docs" / "rules.md").read_text(encoding="utf-8")
[COMMANDS] = re.findall(r"^```sh\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
MISTAKES = re.findall(r"^\| `(\[.*\])` \| (.*?) \| (.*) \|$", TEXT, flags=re.MULTILINE)
MENU = {
    item["itemId"]: {"diet": [], **item["features"]}
    for item in json.loads(re.findall(r'"items": (\[.*?\])}\'', TEXT, re.DOTALL)[0])
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("data")) as service:
        yield service


@pytest.fixture(scope="module")
def answers(service: Service) -> list[dict[str, Any]]:
    """Answers of the page's commands, in their order; those that make the bandit are not among them."""
    find_program("curl")
    program = COMMANDS.replace("127.0.0.1:50080", service.http_address)
    done = subprocess.run(["/bin/sh", "-ec", program], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer for answer in told if "code" in answer] == []
    return [answer for answer in told if "itemIds" in answer]


def of(slate: list[str], feature: str) -> list[Any]:
    return [MENU[item][feature] for item in slate]


def test_each_command_gets_a_slate_that_keeps_its_rule(answers: list[dict[str, Any]]) -> None:
    slates = [answer["itemIds"] for answer in answers]
    basket, cheap, pinned, sponsored, brands, vegan, new, apart, relaxed, once, twice, own = slates
    assert not {"leek", "nut"} & set(basket)
    assert answers[0]["absentItems"] == [
        {"itemId": "nut", "reason": "ABSENCE_REASON_EXCLUDED", "rule": "exclude leek, nut"}
    ]
    assert max(of(cheap, "price")) < 12
    assert "west" not in of(cheap, "brand")
    assert pinned[0] == "curry"
    assert sponsored[2] in {"leek", "fish"}
    assert len(set(of(brands, "brand"))) == 3
    assert 1 <= sum("vegan" in diet for diet in of(vegan, "diet")) <= 2
    assert len(new) == 3
    assert all(one != other for one, other in pairwise(of(apart, "category")))
    assert answers[8]["relaxedRules"] == ["filter price < 5"]
    assert len(relaxed) == 3
    assert len({*once, *twice}) == 6
    assert not {"leek", "stew"} & set(own)


@pytest.mark.parametrize(("rules", "fields", "problem"), MISTAKES)
@pytest.mark.usefixtures("answers")
def test_each_mistake_is_answered_as_the_page_says(service: Service, rules: str, fields: str, problem: str) -> None:
    host, _, port = service.http_address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    asked = f'{{"bandit": "tenants/acme/bandits/menu", "rules": {rules}}}'
    connection.request(
        "POST", "/topk_bandit.v1.RecommenderService/Recommend", asked.encode(), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert response.status == 400, answer
    named = [one["field"] for detail in answer["details"] for one in detail["debug"].get("fieldViolations", [])]
    assert named == re.findall(r"`(.*?)`", fields)
    is_clash = answer["code"] == "failed_precondition"
    assert answer["message"] == (problem if is_clash else f"{named[0]}: {problem}")


def test_there_are_commands_and_mistakes() -> None:
    assert len(MISTAKES) >= 10
    assert len(MENU) == 7
