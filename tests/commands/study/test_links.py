"""`topk-bandit study link`: links are made, listed and ended at a terminal."""

from __future__ import annotations

import re

import pytest
from tests.rpc.studies import START_MS, study_server
from tests.waiting import PATIENCE

from topk_bandit.client import Client
from topk_bandit.commands.cli import main
from topk_bandit.commands.study import links


def test_links_are_made_listed_and_ended(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with study_server() as server:
        with Client(server.target, tenant="acme", timeout=PATIENCE) as client:
            client.create_study("taste", list("abcd"), answer_kind="pair", budget=9)
        monkeypatch.setattr(links, "now_utc", lambda: links.datetime.fromtimestamp(START_MS / 1e3, links.UTC))

        def called(word: str, *flags: str) -> tuple[int, str]:
            status = main(["study", "link", word, "acme/taste", *flags, "--address", server.target])
            said = capsys.readouterr()
            return status, said.out + said.err

        page = ("--page", "https://ask.example/")
        status, out = called("create", "--most-answers=5", "--days=2", "--title=Which tea?", *page)
        found = re.match(r"https://ask\.example/ask#tenants/acme/studies/taste/([0-9a-f]{16})\.[\w-]{43}\n", out)
        assert status == 0
        assert found is not None
        assert "up to 5 answers, until 2023-11-16" in out
        [titles, row] = called("list")[1].splitlines()
        assert titles.split() == ["link", "state", "answers", "of", "people", "newest", "ends", "title"]
        assert row.split()[:6] == [found[1], "open", "0", "5", "0", "-"]
        assert called("revoke", found[1]) == (0, f"link {found[1]} is revoked; 0 answers came through it\n")
        assert called("list")[1].splitlines()[1].split()[1] == "revoked"
        called("create", "--most-answers=5", "--days=2")
        with Client(server.target, tenant="acme", timeout=PATIENCE) as client:
            client.wait_for_design("taste")
            client.next_questions("taste", 9)
        assert "used up" in called("list")[1].splitlines()[2]
        status, out = called("revoke", "0" * 16)
        assert (status, "not found" in out) == (1, True)


@pytest.mark.parametrize(
    "page", ["javascript:alert(1)", "https://ask.example/x?y", "https://ask.example#z", "ask", "https://"]
)
def test_the_page_of_a_link_is_an_address(capsys: pytest.CaptureFixture[str], page: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["study", "link", "create", "acme/taste", "--most-answers=5", f"--page={page}"])
    assert ended.value.code == 2
    assert "is no address such as https://ask.example" in capsys.readouterr().err
