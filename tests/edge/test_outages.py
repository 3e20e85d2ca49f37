"""What the log says of a target that goes and comes back."""

import logging
from collections.abc import Iterable

import pytest

from prefixwatch.outages import FLIPPING_SECONDS, FLIPS, QUIET_SECONDS, OutageLog


def told(records: list[logging.LogRecord], results: Iterable[tuple[float, bool]]) -> list[tuple[str, int]]:
    """Return what is said of these results of polls, and of how many changes each line is."""
    log = OutageLog("a:1", logging.getLogger("prefixwatch.test"))
    for time, is_up in results:
        log.note(time, "up" if is_up else "down", is_up=is_up)
    assert {record.target for record in records} <= {"a:1"}
    return [(record.getMessage(), getattr(record, "changes", 1)) for record in records]


def every(seconds: float, results: str, *, start: float = 0.0) -> list[tuple[float, bool]]:
    """Return results of polls: "+" is an answer, "-" none."""
    return [(start + i * seconds, result == "+") for i, result in enumerate(results)]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param(every(5, "++++"), [], id="always there"),
        pytest.param(every(5, "----"), [("down", 1)], id="never there: once"),
        pytest.param(every(5, "+--++"), [("down", 1), ("up", 1)], id="an outage"),
        pytest.param(every(400, "-+" * 5), [("down", 1), ("up", 1)] * 5, id="a change now and then is told each time"),
    ],
)
def test_each_change_is_told(records, results, expected) -> None:
    assert told(records, results) == expected


def test_one_that_flips_is_spoken_of_once_a_minute_with_how_often(records) -> None:
    found = told(records, every(5, "-+" * 360))
    assert found[:FLIPS] == [("down", 1), ("up", 1)] * (FLIPS // 2)
    assert {changes for _, changes in found[FLIPS:]} == {13}, "after a minute, when it differs from what was said"
    assert len(found) <= FLIPS + 3600 / QUIET_SECONDS


@pytest.mark.parametrize(("last", "expected"), [("-", "down"), ("+", "up")])
def test_what_holds_in_the_end_is_told(records, last: str, expected: str) -> None:
    assert told(records, every(5, "-+" * 20 + last * 20))[-1][0] == expected


def test_one_that_was_steady_for_a_while_is_told_of_at_once_again(records) -> None:
    later = 200 + FLIPPING_SECONDS
    found = told(records, [*every(5, "-+" * 20), *every(5, "+" * 30, start=200), *every(5, "-+-", start=later)])
    assert [message for message, _ in found[-3:]] == ["down", "up", "down"]
