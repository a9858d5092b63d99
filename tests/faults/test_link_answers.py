"""Many people answer through a link at once, and while the service is killed: each answer counts once."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.faults.service import serving
from tests.waiting import PATIENCE, until

from topk_bandit.studies.model import LinkPlace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.service import Service

    from topk_bandit.client import StudyLink

STUDY = "tenants/shop/studies/taste"
ITEMS = [f"i{number}" for number in range(8)]
PEOPLE = 100
EACH = 3


def make_link(service: Service, *, people: int) -> StudyLink:
    with service.client() as client:
        client.create_study("taste", ITEMS, answer_kind="ranking", list_size=3, budget=1000)
        client.wait_for_design("taste")
        ends = datetime.now(UTC) + timedelta(days=1)
        return client.create_study_link("taste", most_answers=people * EACH, answers_each=EACH, expire_time=ends)


class Person:
    """Somebody who sends each answer until it is acknowledged."""

    def __init__(self, service: Service, link: StudyLink) -> None:
        self._service = service
        self._token = link.token
        self.name = ""
        self.outcomes: list[str] = []

    def call(self, method: str, **fields: object) -> dict[str, Any]:
        """Return the answer to a call that is made until there is one."""
        answers: list[dict[str, Any]] = []

        def is_answered() -> bool:
            with suppress(OSError, http.client.HTTPException):
                status, answer = self.post(method, **fields)
                assert status in {200, 429, 503}, answer
                answers.extend([answer] if status == 200 else [])
            return bool(answers)

        until(is_answered, what=f"{method} is answered")
        return answers[0]

    def post(self, method: str, **fields: object) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(self._service.http_address, timeout=PATIENCE)
        try:
            body = json.dumps({"study": STUDY, "token": self._token, **fields})
            path = f"/topk_bandit.v1.PreferenceService/{method}"
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def answer_all(self, *, times: int) -> None:
        while questions := self._ask():
            ranking = {"itemIds": sorted(item["itemId"] for item in questions[0]["items"])}
            answer = {"questionId": questions[0]["questionId"], "ranking": ranking}
            for _ in range(times):
                outcome = self.call("SubmitLinkAnswer", respondent=self.name, answer=answer)["outcome"]
                self.outcomes.append(outcome.removeprefix("ANSWER_OUTCOME_"))

    def _ask(self) -> list[dict[str, Any]]:
        page = self.call("GetLinkQuestions", respondent=self.name)
        self.name = page["respondent"]
        found: list[dict[str, Any]] = page["questions"]
        return found


def answer_at_once(people: list[Person], *, times: int) -> None:
    with ThreadPoolExecutor(len(people)) as threads:
        for done in [threads.submit(person.answer_all, times=times) for person in people]:
            done.result()


def places_of(service: Service) -> list[LinkPlace]:
    """Return which question of which device was asked, in the order of the log."""
    with service.client() as client:
        lines = [json.loads(line) for line in client.export_study("taste")]
    found = [LinkPlace.of(line["request"]["request_id"]) for line in lines if "request" in line]
    return [place for place in found if place is not None]


def check(service: Service, people: list[Person]) -> None:
    """Check that each answer of each person was counted once, and no other."""
    places = places_of(service)
    assert sorted(places) == sorted(
        LinkPlace(places[0].link_id, person.name, number) for person in people for number in range(1, EACH + 1)
    )
    with service.client() as client:
        study, [link] = client.get_study("taste"), client.list_study_links("taste")
        assert client.get_preferences("taste").answered_count == len(places)
    assert study.asked_count == study.answered_count == link.answered_count == len(people) * EACH
    assert link.respondent_count == len(people)


def test_a_hundred_people_at_once_count_once_each(folder: Path) -> None:
    with serving(folder, "--answer-links=true", "--workers=2") as service:
        people = [Person(service, link) for link in [make_link(service, people=PEOPLE)] for _ in range(PEOPLE)]
        begun = time.monotonic()
        people[0].answer_all(times=2)
        print(f"one person's {EACH} answers, each sent twice, took {time.monotonic() - begun:.2f} s")
        begun = time.monotonic()
        answer_at_once(people[1:], times=2)
        print(f"those of {PEOPLE - 1} at once took {time.monotonic() - begun:.1f} s")
        for person in people:
            assert person.outcomes == ["ACCEPTED", "DUPLICATE"] * EACH
        check(service, people)
        names = {person.name for person in people}
        said = service.log
        assert not [name for name in names if name in said]
        assert not [name for name in names if name in service.page("/metrics")[1]]


def test_an_answer_whose_acknowledgement_is_lost_counts_once(folder: Path) -> None:
    """Workers are killed while people answer, and then everything is."""
    with serving(folder, "--answer-links=true", "--workers=2") as service:
        link = make_link(service, people=20)
        people = [Person(service, link) for _ in range(20)]
        answering = threading.Thread(target=answer_at_once, args=(people,), kwargs={"times": 1})
        answering.start()
        for kills in range(1, 4):
            until(lambda kills=kills: len(places_of(service)) >= 5 * kills, what="some answered")
            for pid in service.worker_pids[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        until(lambda: len(places_of(service)) >= 30, what="most answered")
        service.kill_everything()
        service.wait()
        service.start()
        answering.join(PATIENCE)
        assert not answering.is_alive()
        assert {one for person in people for one in person.outcomes} <= {"ACCEPTED", "DUPLICATE"}
        check(service, people)
