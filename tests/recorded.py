"""Recorded traces as readings of their pages: read once, then thinned, cut or stripped at will."""

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.page.reading import PageReading
from prefixwatch.snapshot import EngineFigures
from prefixwatch.targetwatch import TargetWatch
from prefixwatch.trace import scrapes

TRACES = Path(__file__).parent / "data" / "traces"
NAMES = tuple(sorted(path.name for path in TRACES.iterdir()))
RESIDENCY = ("block_lifetime_seconds/", "block_idle_seconds/", "block_reuse_gap_seconds/")


@functools.cache
def truth(name: str) -> dict[str, Any]:
    """Return what is known of a trace."""
    return json.loads((TRACES / name / "truth.json").read_text())


@functools.cache
def pages(name: str) -> tuple[PageReading, ...]:
    """Return the pages of a trace that was recorded."""
    return pages_of(TRACES / name)


def pages_of(folder: Path) -> tuple[PageReading, ...]:
    """Return the pages of a trace, as far as they are whole."""
    reader, interpreter = PageReader(is_wanted), Interpreter()
    read = ((scrape.time, reader.read(scrape.body)) for scrape in scrapes(folder) if scrape.body is not None)
    return tuple(interpreter.interpret(page, time=time) for time, page in read if not page.is_cut)


def without_residency(found: Iterable[PageReading]) -> list[PageReading]:
    """Return the pages of an engine that was started without --kv-cache-metrics."""
    return [
        replace(
            page,
            engines=tuple(
                replace(one, counters={k: v for k, v in one.counters.items() if not k.startswith(RESIDENCY)})
                for one in page.engines
            ),
        )
        for page in found
    ]


def watched(found: Iterable[PageReading], **options: Any) -> TargetWatch:
    """Return a watch that took these pages."""
    watch = TargetWatch("localhost:8000", **options)
    for page in found:
        watch.add(page)
    return watch


def figures(found: Iterable[PageReading], seconds: float | None = None) -> Sequence[EngineFigures]:
    """Return the figures of each engine over the last `seconds`, or over everything seen."""
    return watched(found).state((seconds,)).snapshot(seconds).engines
