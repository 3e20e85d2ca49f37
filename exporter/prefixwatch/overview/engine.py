"""One engine in full: ratio and trend, why and what to do, figures, what is absent, notes."""

import hashlib
import re
from collections.abc import Iterator, Sequence

from prefixwatch.diagnosis import Diagnosis
from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.wording import duration, percent
from prefixwatch.overview import charts, rows
from prefixwatch.overview.markup import DASH, Markup, joined, tag
from prefixwatch.overview.state import headline, in_words, state_label, trouble
from prefixwatch.overview.views import EngineView, Overview, TargetView
from prefixwatch.snapshot import EngineFigures

_WHOLE_WINDOW = 0.9
_FLAG = re.compile(r"(--[a-z-]{2,40})")
_NAMES = {
    "hit_ratio_gap": "gap between token and request level",
    "kv_usage_max": "highest usage",
    "prefill_share": "share of prefill",
    "output_per_prompt_token": "output per prompt token",
    "requests": "finished requests",
    "window_seconds": "length of the window",
    "request_hit_ratio": "request level",
    "residency.late_reuse_share": "share of late reuses",
    "token_hit_ratio": "token level",
}


def engine_article(target: TargetView, engine: EngineView, overview: Overview) -> Markup:
    """Return all that is known of an engine."""
    figures = engine.figures
    key = _key(target, figures)
    return tag(
        "article",
        tag("header", headline(target, figures, level="h2", key=key), state_label(target.state)),
        trouble(target, overview.time),
        tag(
            "div",
            tag(
                "div",
                _lead(figures, overview),
                _trend(engine, overview),
                _windows(engine),
                _diagnosis(figures.diagnosis),
            ),
            tag("div", rows.sections(figures), class_="figures"),
            tag("div", rows.blocks(figures), _absent(figures)),
            class_="columns",
        ),
        aria_labelledby=key,
    )


def _key(target: TargetView, figures: EngineFigures) -> str:
    """Return an identifier that stays the same from one page to the next."""
    text = f"{target.snapshot.target}\0{figures.model_name}\0{figures.engine}"
    return f"engine-{hashlib.blake2s(text.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"


def _lead(figures: EngineFigures, overview: Overview) -> Iterator[Markup]:
    ratio, seconds = figures.token_hit_ratio, figures.window_seconds
    yield tag(
        "p",
        tag("strong", DASH if isinstance(ratio, Absent) else percent(ratio)),
        tag("span", "token hit ratio"),
        class_="lead",
    )
    if isinstance(ratio, Absent):
        yield tag("p", f"Absent: {ratio.reason}.", class_="note")
        return
    ceiling = figures.hit_ratio_ceiling
    allowed = "" if isinstance(ceiling, Absent) else f" These prompt lengths allow {percent(ceiling.estimate)}."
    if isinstance(seconds, Absent) or seconds >= _WHOLE_WINDOW * overview.window:
        covered = f"the last {overview.window}"
    else:
        covered = f"the {duration(seconds)} seen so far"
    yield tag("p", f"of looked-up prompt tokens were in the cache, over {covered}.{allowed}", class_="note")


def _trend(engine: EngineView, overview: Overview) -> Markup | None:
    trend = engine.trend_of()
    if not any(value is not None for value in trend):
        return None
    ceiling = engine.figures.hit_ratio_ceiling
    limit = None if isinstance(ceiling, Absent) else ceiling
    drawing = charts.sparkline(trend, label=f"Token hit ratio over the last {overview.trend_span}", ceiling=limit)
    dashed = " \N{MIDDLE DOT} dashed: the most these prompt lengths allow" if limit else ""
    return tag(
        "figure",
        tag("div", tag("span", "100 %"), tag("span", "0 %"), class_="scale", aria_hidden="true"),
        drawing,
        tag("figcaption", tag("span", f"{overview.trend_span} ago{dashed}"), tag("span", "now")),
        class_="trend",
    )


def _windows(engine: EngineView) -> Iterator[Markup]:
    """Yield a table of the levels, window by window, and why a window has no value: each reason once."""
    if not engine.by_window:
        return
    levels: list[tuple[str, dict[str, float | Absent]]] = [
        ("token level", {window: one.token_hit_ratio for window, one in engine.by_window.items()})
    ]
    requests = {window: one.request_hit_ratio for window, one in engine.by_window.items()}
    if any(isinstance(one, Estimate) for one in requests.values()):
        estimates = {w: one if isinstance(one, Absent) else one.estimate for w, one in requests.items()}
        levels.append(("request level", estimates))
    yield tag(
        "table",
        tag(
            "thead", tag("tr", tag("th", "window", scope="col"), (tag("th", w, scope="col") for w in engine.by_window))
        ),
        tag("tbody", (tag("tr", tag("th", label, scope="row"), map(_cell, row.values())) for label, row in levels)),
        class_="windows",
    )
    without: dict[str, dict[str, None]] = {}
    for _, row in levels:
        for window, value in row.items():
            if isinstance(value, Absent) and value != engine.figures.token_hit_ratio:
                without.setdefault(value.reason, {})[window] = None
    if without:
        yield tag("ul", (tag("li", f"{', '.join(windows)}: {why}") for why, windows in without.items()), class_="note")


def _cell(value: float | Absent) -> Markup:
    return tag("td", DASH if isinstance(value, Absent) else percent(value))


def _diagnosis(diagnosis: Diagnosis | Absent) -> Markup | None:
    if isinstance(diagnosis, Absent):
        return None
    return tag(
        "section",
        tag("h3", "Why: ", tag("strong", in_words(diagnosis.cause)), f" ({diagnosis.confidence} confidence)"),
        _list(diagnosis.evidence),
        (tag("h3", "What to do"), _list(diagnosis.next_steps)) if diagnosis.next_steps else None,
        class_="diagnosis",
    )


def _list(lines: Sequence[str]) -> Markup | None:
    """Return lines as a list; a flag of a command line in them is not broken."""
    return tag("ul", (tag("li", map(_flagged, _FLAG.split(line))) for line in lines)) if lines else None


def _flagged(text: str) -> Markup:
    return tag("code", text) if _FLAG.fullmatch(text) else joined(text)


def _absent(figures: EngineFigures) -> Markup | None:
    """Return what is absent and why, each reason once."""
    reasons: dict[str, list[str]] = {}
    for figure, reason in figures.to_json()["reasons"].items():
        reasons.setdefault(reason, []).append(_NAMES.get(figure, re.sub(r"[_.]", " ", figure)))
    lines = (tag("li", ", ".join(figures_), ": ", tag("em", reason)) for reason, figures_ in reasons.items())
    return tag("section", tag("h3", "Absent, not zero"), tag("ul", lines), class_="absent") if reasons else None


def notes(caveats: Sequence[str]) -> Markup | None:
    """Return what is known to be wrong with a target's counting."""
    lines = (tag("li", caveat.partition(": ")[2] or caveat) for caveat in caveats)
    return (
        tag("section", tag("h3", "Known of this release's counting"), tag("ul", lines), class_="absent")
        if caveats
        else None
    )
