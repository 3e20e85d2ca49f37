"""The exporter's estimates keep up when the traffic of an engine changes, again and again."""

from collections.abc import Iterator

import numpy as np
import pytest

from coherence import contradictions
from faults.truth import Truth
from prefixwatch.demo.offline import EPOCH
from prefixwatch.demo.scenarios import SCENARIOS, TOUR
from prefixwatch.demo.standin import StandIn
from prefixwatch.enginestate import EngineState
from prefixwatch.figures.figure import Estimate
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.targetwatch import TargetWatch

EACH = 25
SPAN = 20.0
FIELDS = {
    "hit_ratio": "request_hit_ratio",
    "mostly_cached": "mostly_cached_request_ratio",
    "full": "full_request_ratio",
    "cold": "cold_request_ratio",
}
TOURS = {
    "as the demo goes": TOUR[:4],
    "nothing cached, then a third of the same prompts": ("salted", "mid_variable", "healthy", "mixed_short_warm"),
}


def polled(names: tuple[str, ...], seed: int) -> Iterator[tuple[EngineState, Truth]]:
    """Yield the engine after every other poll; each scenario takes EACH seconds."""
    standin = StandIn(SCENARIOS[names[0]], seed=seed, half_time=EACH / 2, kept=None, unix=lambda now: EPOCH + now)
    standin.start()
    truth, reader, interpreter = Truth(standin), PageReader(is_wanted), Interpreter()
    watch = TargetWatch("localhost:8000", spans=(SPAN, 60.0, 300.0))
    for second in range(1, EACH * len(names)):
        if second % EACH == 0:
            standin.switch(SCENARIOS[names[second // EACH]])
        standin.advance(float(second))
        truth.note(EPOCH + second, keep=1e6)
        watch.add(interpreter.interpret(reader.read(standin.page()), time=EPOCH + second))
        if second % 2:
            (engine,) = watch.state((SPAN,)).engines
            yield engine, truth


@pytest.mark.parametrize("tour", TOURS)
def test_estimates_follow_the_traffic(tour: str) -> None:
    errors = []
    for engine, truth in polled(TOURS[tour], seed=3):
        window, figures = engine.past.window(SPAN), engine.figures(SPAN)
        assert contradictions(figures) == []
        if window is None or not isinstance(figures.request_hit_ratio, Estimate):
            continue
        shares = truth.finished(window.start, window.end)
        found = {name: getattr(figures, field) for name, field in FIELDS.items()}
        assert all(figure.lower - 1e-6 <= shares[name] <= figure.upper + 1e-6 for name, figure in found.items())
        errors.append([abs(figure.estimate - shares[name]) for name, figure in found.items()])
    assert len(errors) > EACH
    mean, worst = np.mean(errors, axis=0), np.quantile(errors, 0.95, axis=0)
    assert (mean < 0.04).all(), mean
    assert (worst < 0.15).all(), worst
