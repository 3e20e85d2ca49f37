"""Any input gives a result or the one named error. `make fuzz` takes a hundred times as many examples."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.strategies import STRATEGIES
from fuzz.targets import TARGETS, compared_samples

CASES = sorted(file for file in (Path(__file__).parent / "cases").iterdir() if file.suffix != ".md")
_OPTIONS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.parametrize("name", TARGETS)
def test_what_looks_like_the_real_thing(name: str) -> None:
    settings(settings.default, max_examples=2 * settings.default.max_examples, **_OPTIONS)(
        given(STRATEGIES[name])(TARGETS[name])
    )()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    settings(settings.default, **_OPTIONS)(given(st.binary(max_size=200))(TARGETS[name]))()


def test_many_pages_are_ones_that_the_other_reader_takes_too() -> None:
    compared: list[int] = []
    settings(settings.default, max_examples=100, **_OPTIONS)(
        given(STRATEGIES["page_beside_another_reader"])(lambda content: compared.append(compared_samples(content)))
    )()
    assert sum(samples > 0 for samples in compared) > 0.2 * len(compared)


@pytest.mark.parametrize("case", CASES, ids=lambda file: file.name)
def test_what_was_found_before(case: Path) -> None:
    """A case is called TARGET-WHAT; what was wrong stands in the README beside them."""
    TARGETS[case.name.partition("-")[0]](case.read_bytes())
