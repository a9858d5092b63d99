"""What the end of a run says of programs that a machine lacks."""

from __future__ import annotations

import pytest
from tests.programs import find_program, leave_out, summarize


def test_one_line_says_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.programs.IN_CI", False)
    reasons = [missed(lambda: find_program("no-such-program"))] * 3
    reasons += [missed(lambda: leave_out("axe-core", "make axe")), "Skipped: only root may do that"]
    assert summarize(reasons) == (
        "4 tests were left out, since this machine has no no-such-program (3), axe-core (1). "
        "To have them: apt-get install no-such-program; make axe"
    )
    assert summarize(["Skipped: only root may do that"]) == ""


def test_the_gate_fails_where_a_machine_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.programs.IN_CI", True)
    with pytest.raises(pytest.fail.Exception, match="needs no-such-program"):
        find_program("no-such-program")


def missed(look: object) -> str:
    with pytest.raises(pytest.skip.Exception) as caught:
        look()  # type: ignore[operator]
    return f"Skipped: {caught.value}"
