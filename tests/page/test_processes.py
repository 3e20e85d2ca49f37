"""Who answers: the same process, a restarted one, several in turn, or nobody can tell."""

import pytest

from prefixwatch.page.caveats import Era
from prefixwatch.page.reading import PageReading, Reading
from prefixwatch.processes import FALL_POLLS, HOLD_SECONDS, MAX_FALLS, MAX_SEEN, Processes, Verdict

SAME, RESTARTED, UNCLEAR, SEVERAL = Verdict.SAME, Verdict.RESTARTED, Verdict.UNCLEAR, Verdict.SEVERAL


def page(time: float, created: float | None = None, start: float | None = None, engines: str = "a") -> PageReading:
    """A page at `time` of engines called by one letter each."""
    readings = tuple(Reading(time=time, model_name=name, engine="0", counters={}, gauges={}) for name in engines)
    return PageReading(
        time=time, dialect="vllm", release=None, era=Era(), caveats=(), epoch=(created, start), engines=readings
    )


def verdicts(pages: list[PageReading], falls: tuple[int, ...] = ()) -> list[Verdict]:
    """Judge pages in order; `falls`: at which of them a counter is lower than before."""
    processes = Processes()
    return [processes.judge(one, has_fallen=position in falls) for position, one in enumerate(pages)]


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        pytest.param([(1000, 10, 5), (1005, 10, 5), (1010, 10, 5)], [SAME] * 3, id="the same"),
        pytest.param([(1000, 10, None), (1005, 1003, None)], [SAME, RESTARTED], id="created since the last page"),
        pytest.param([(1000, None, 5), (1005, None, 1002)], [SAME, RESTARTED], id="started since the last page"),
        pytest.param([(1000, 10, 5), (1005, 1004, 1002)], [SAME, RESTARTED], id="both"),
        pytest.param(
            [(1000, 10, 5), (1005, 1003, 1002), (1010, 1003, 1002), (1015, 1012, 1011)],
            [SAME, RESTARTED, SAME, RESTARTED],
            id="two restarts",
        ),
        pytest.param([(1000, 10, 5), (1005, 20, 15)], [SAME, UNCLEAR], id="another, older than the last page"),
        pytest.param([(1000, 10, 5), (1005, 10, 3605)], [SAME, SAME], id="the host's clock was set: only the start moves"),
        pytest.param([(1000, 10, 5), (1005, 3610, 5)], [SAME, UNCLEAR], id="began after this page: another clock"),
        pytest.param(
            [(1000, 10, 5), (1005, 20, 15), (1010, 20, 15)], [SAME, UNCLEAR, SAME], id="another that stays is believed"
        ),
        pytest.param(
            [(1000, 10, 5), (1005, 20, 15), (1010, 10, 5), (1015, 20, 15), (1020, 20, 15)],
            [SAME, UNCLEAR, SEVERAL, SEVERAL, SEVERAL],
            id="back and forth: several in turn",
        ),
        pytest.param(
            [(1000, 10, None), (1005, 20, None), (1010, 30, None), (1015, 10, None)],
            [SAME, UNCLEAR, UNCLEAR, SEVERAL],
            id="three in turn",
        ),
        pytest.param(
            [(1000, 10, None), (1005, 1003, None), (1010, 10, None)],
            [SAME, RESTARTED, SEVERAL],
            id="a new replica beside an old one",
        ),
        pytest.param([(1000, 10, 5), (1005, None, 5), (1010, 10, 5)], [SAME] * 3, id="_created missing for a page"),
        pytest.param([(1000, 10, None), (1005, None, None), (1010, 10, None)], [SAME] * 3, id="nothing for a page"),
        pytest.param(
            [(1000, 10, None), (1005, None, None), (1010, 1007, None)],
            [SAME, SAME, RESTARTED],
            id="a restart behind a page that says nothing",
        ),
    ],
)  # fmt: skip
def test_a_process_is_told_by_its_start(pages, expected):
    assert verdicts([page(*one) for one in pages]) == expected


def test_a_restart_of_an_engine_whose_clock_is_ahead_is_told_by_its_values():
    assert verdicts([page(1000, 10), page(1005, 1060)], falls=(1,)) == [SAME, RESTARTED]


def test_a_page_without_engines_is_no_process():
    """A Ray node serves pages before, and between, its engines' lives."""
    pages = [page(1000, engines=""), page(1005, 1003), page(1010, 1003), page(1015, engines=""), page(1020, 1018)]
    assert verdicts(pages) == [SAME, SAME, SAME, SAME, RESTARTED]


@pytest.mark.parametrize(
    ("engines", "falls", "expected"),
    [
        pytest.param(["a", "a", "a"], (1,), [SAME, RESTARTED, SAME], id="a counter that fell is a restart"),
        pytest.param(["a", "b", "b"], (), [SAME, RESTARTED, SAME], id="another model"),
        pytest.param(["a", "b", "a"], (), [SAME, RESTARTED, SEVERAL], id="two models in turn"),
        pytest.param(["a", "ab", "b", "ab"], (), [SAME, SAME, SAME, SAME], id="engines come and go"),
        pytest.param(["a"] * 6, (1, 3, 5), [SAME, RESTARTED, SAME, RESTARTED, SAME, SEVERAL], id="falls too often"),
    ],
)
def test_a_process_that_states_no_start_is_told_by_engines_and_values(engines, falls, expected):
    assert verdicts([page(1000 + 5 * i, engines=names) for i, names in enumerate(engines)], falls) == expected


def test_falls_far_apart_are_restarts():
    distance = FALL_POLLS // (MAX_FALLS - 1) + 1
    falls = tuple(range(distance, distance * 6, distance))
    found = verdicts([page(1000 + 5 * i) for i in range(distance * 6)], falls)
    assert [found[at] for at in falls] == [RESTARTED] * len(falls)
    assert SEVERAL not in found


def test_a_process_that_states_its_start_is_one_however_its_counters_fall():
    assert SEVERAL not in verdicts([page(1000 + i, 10, 5) for i in range(10)], tuple(range(1, 10)))


def test_an_address_is_believed_again_after_it_answered_for_one_alone():
    in_turn = [page(1000, 10), page(1005, 20), page(1010, 10)]
    alone = [page(1010 + after, 10) for after in (5, HOLD_SECONDS - 1, HOLD_SECONDS, HOLD_SECONDS + 5)]
    assert verdicts(in_turn + alone)[3:] == [SEVERAL, SEVERAL, SAME, SAME]


def test_a_restart_after_that_is_one():
    pages = [page(1000, 10), page(1005, 20), page(1010, 10), page(2000, 10), page(2005, 2003), page(2010, 2003)]
    assert verdicts(pages)[3:] == [SAME, RESTARTED, SAME]


def test_a_second_time_in_turn_is_known_as_soon_as_the_first_is_back():
    again = [page(2000, 10), page(2005, 30), page(2010, 10)]
    assert verdicts([page(1000, 10), page(1005, 20), page(1010, 10), *again])[3:] == [SAME, UNCLEAR, SEVERAL]


def test_what_is_remembered_is_bounded():
    processes = Processes()
    for n in range(MAX_SEEN * 3):
        processes.judge(page(1000 + n, created=n), has_fallen=False)
    assert len(processes._seen) == MAX_SEEN
