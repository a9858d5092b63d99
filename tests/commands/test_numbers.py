"""Numbers of flags: decimal, in ASCII, and within what a command can use."""

from __future__ import annotations

import argparse

import pytest

from topk_bandit.commands.cli import main
from topk_bandit.commands.numbers import count, natural, number, position, real, whole


@pytest.mark.parametrize("text", ["1_000", "\u0663", "3.0", "1e3", "", "three", "9" * 30, "0x10", "--3"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"must be a whole number|must be from"):
        count(text)


@pytest.mark.parametrize("text", ["1_000", "\u0663", "nan", "inf", "1e400", "", "NA", "0,5"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number from 0 to 1") as refused:
        real(0.0, 1.0)(text)
    assert ("write a decimal point" in str(refused.value)) == (text == "0,5")


def test_numbers_are_read_up_to_their_ends() -> None:
    assert [count("1"), natural("0"), position(str(2**63 - 1)), whole(-5, 5)("-5")] == [1, 0, 2**63 - 1, -5]
    assert [number("0.5"), real(-1.0, 1.0)("-1e-3")] == [0.5, -1e-3]
    for read, text in (
        (count, "0"),
        (natural, "-1"),
        (position, str(2**63)),
        (real(0.0, 1.0), "1.01"),
    ):
        with pytest.raises(argparse.ArgumentTypeError, match="must be"):
            read(text)


def test_a_flag_says_which_number_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["study", "ask", "--items", "items.csv", "--out", "out", "--count", "100000000"])
    assert "argument --count: must be from 1 to 100000, not 100000000" in capsys.readouterr().err
