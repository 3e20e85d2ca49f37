"""Each fault on the whole chain: a real exporter, real connections, what is exported before, during and after."""

import asyncio

import pytest

from faults.rig import HITS, QUERIES, WINDOW, Patient, Ward, observe
from faults.table import FAULTS

MEGABYTES = 400.0


@pytest.fixture(scope="module", params=[False, True], ids=["light", "heavy"])
def ward(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ward:
    return _ward(request.param, tmp_path_factory)


_WARDS: dict[bool, Ward] = {}


def _ward(is_heavy: bool, tmp_path_factory: pytest.TempPathFactory) -> Ward:
    if is_heavy not in _WARDS:
        faults = tuple(fault for fault in FAULTS if fault.is_heavy == is_heavy)
        _WARDS[is_heavy] = asyncio.run(observe(faults, tmp_path_factory.mktemp("faults")))
    return _WARDS[is_heavy]


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.name)
def patient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Patient:
    ward = _ward(request.param.is_heavy, tmp_path_factory)
    return next(one for one in ward.patients if one.fault == request.param)


def test_it_is_named(patient: Patient) -> None:
    reasons = {
        dict(labels)["reason"]
        for scrape in patient.scrapes
        for name, labels in scrape.samples
        if name == "prefixwatch_poll_errors_total"
    }
    expected = {patient.fault.reason} if patient.fault.reason else set()
    assert reasons == (expected if patient.fault.passes else expected | {"several_engines"})
    assert any(patient.fault.words in error for error in patient.errors)


def test_nothing_wrong_is_exported_meanwhile(patient: Patient) -> None:
    ratios = {ratio for scrape in patient.scrapes for ratio in scrape.values("token_hit_ratio", window=WINDOW)}
    true = [*patient.ratios()]
    assert all(min(abs(ratio - one) for one in true) < 1e-9 for ratio in ratios)
    for scrape in patient.scrapes:
        assert set(scrape.values("queried_tokens_total", model_name="tiny")) <= patient.stated(QUERIES)
        assert set(scrape.values("hit_tokens_total", model_name="tiny")) <= patient.stated(HITS)
        assert len(scrape.engines) <= 1
        assert scrape.value("engine_restarts_total", model_name="tiny") in (0.0, None), "none restarted"


@pytest.mark.parametrize(
    "patient",
    [fault for fault in FAULTS if fault.reason not in (None, "incomplete")],
    indirect=True,
    ids=lambda fault: fault.name,
)
def test_a_target_that_fails_is_down_and_what_is_stale_ends(patient: Patient) -> None:
    at_the_end = [scrape for scrape in patient.scrapes if sum(scrape.values("poll_errors_total")) >= 3]
    failed = [scrape for scrape in at_the_end if scrape.value("up") == 0]
    assert failed
    assert not any(scrape.engines for scrape in failed)


def test_it_is_right_again_with_the_first_good_page(patient: Patient) -> None:
    last = patient.scrapes[-1]
    if not patient.fault.passes:
        assert last.value("up") == 0, "which of two is the right one cannot be known"
        assert not last.engines
        return
    if patient.fault.answer is not None:
        assert sum(last.values("poll_errors_total")) <= patient.faulty, "no good page was refused"
    assert last.value("up") == 1
    assert last.value("queried_tokens_total") in patient.stated(QUERIES)
    assert last.engines == {"tiny"}


def test_the_process_stayed_alive_small_and_quiet(ward: Ward) -> None:
    assert ward.status == 0
    assert ward.seconds_to_end < 5
    assert ward.peak < MEGABYTES
    assert "Traceback" not in ward.log
    assert "internal" not in ward.log
