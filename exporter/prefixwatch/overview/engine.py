"""One engine in full: ratio and trend, why and what to do, figures, what is absent, notes."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.overview import charts
from prefixwatch.overview.markup import Content, Markup, cut, joined, name, tag
from prefixwatch.overview.state import headline, state_label, trouble
from prefixwatch.overview.views import Diagnosis, EngineView, Overview, TargetView
from prefixwatch.report import duration, percent, span
from prefixwatch.snapshot import EngineFigures

_MAX_SOURCES = 4
_WHOLE_WINDOW = 0.9
_NAMES = {
    "hit_ratio_gap": "gap between token and request level",
    "kv_usage_max": "highest usage",
    "prefill_share": "share of prefill",
    "output_per_prompt_token": "output per prompt token",
    "requests": "finished requests",
    "window_seconds": "length of the window",
    "request_hit_ratio": "request level",
    "token_hit_ratio": "token level",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One figure: what it is called, its value, what that says."""

    label: str
    value: str
    note: Content = None
    drawing: Markup | None = None


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
            tag("div", _lead(figures, overview), _trend(engine, overview), _windows(engine), _diagnosis(engine.diagnosis)),
            tag(
                "div",
                _section("Token and request level", _level_rows(figures)),
                _section("Requests", _request_rows(figures)),
                _section("KV pool", _pool_rows(figures)),
                _section("Traffic", _traffic_rows(figures)),
                class_="figures",
            ),
            class_="columns",
        ),
        _absent(figures),
        aria_labelledby=key,
    )


def _key(target: TargetView, figures: EngineFigures) -> str:
    """Return an identifier that stays the same from one page to the next."""
    text = "\0".join((target.snapshot.target, figures.model_name, figures.engine))
    return f"engine-{hashlib.blake2s(text.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"


def _lead(figures: EngineFigures, overview: Overview) -> Iterator[Markup]:
    ratio, seconds = figures.token_hit_ratio, figures.window_seconds
    yield tag("p", tag("strong", "\N{EN DASH}" if isinstance(ratio, Absent) else percent(ratio)), " token hit ratio", class_="lead")
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
    if not any(value is not None for value in engine.trend):
        return None
    ceiling = engine.figures.hit_ratio_ceiling
    limit = None if isinstance(ceiling, Absent) else ceiling
    drawing = charts.sparkline(engine.trend, label=f"Token hit ratio over the last {overview.trend_span}", ceiling=limit)
    dashed = " \N{MIDDLE DOT} dashed: the most these prompt lengths allow" if limit else ""
    return tag(
        "figure",
        tag("div", tag("span", "100 %"), tag("span", "0 %"), class_="scale", aria_hidden="true"),
        drawing,
        tag("figcaption", tag("span", f"{overview.trend_span} ago{dashed}"), tag("span", "now")),
        class_="trend",
    )


def _windows(engine: EngineView) -> Markup | None:
    """Return a table of the levels, window by window; why a window has no value stands below it, once."""
    if not engine.by_window:
        return None
    rows: list[tuple[str, list[float | Absent]]] = [
        ("token level", [one.token_hit_ratio for one in engine.by_window.values()])
    ]
    requests = [one.request_hit_ratio for one in engine.by_window.values()]
    if any(isinstance(one, Estimate) for one in requests):
        rows.append(("request level", [one if isinstance(one, Absent) else one.estimate for one in requests]))
    reasons = dict.fromkeys(value.reason for _, values in rows for value in values if isinstance(value, Absent))
    return joined(
        (
            tag(
                "table",
                tag("thead", tag("tr", tag("th", "window", scope="col"), (tag("th", w, scope="col") for w in engine.by_window))),
                tag("tbody", (tag("tr", tag("th", label, scope="row"), map(_cell, values)) for label, values in rows)),
                class_="windows",
            ),
            tag("p", "; ".join(reasons), class_="note") if reasons else None,
        )
    )


def _cell(value: float | Absent) -> Markup:
    return tag("td", "\N{EN DASH}" if isinstance(value, Absent) else percent(value))


def _diagnosis(diagnosis: Diagnosis | None) -> Markup | None:
    if diagnosis is None:
        return None
    cause = diagnosis.cause.replace("_", " ")
    return tag(
        "section",
        tag("h3", "Why: ", tag("strong", cause), f" ({diagnosis.confidence} confidence)"),
        _list(diagnosis.evidence),
        (tag("h3", "What to do"), _list(diagnosis.next_steps)) if diagnosis.next_steps else None,
        class_="diagnosis",
    )


def _list(lines: Sequence[str]) -> Markup | None:
    return tag("ul", (tag("li", line) for line in lines)) if lines else None


def _section(title: str, rows: Iterator[_Row]) -> Markup | None:
    written = [
        tag("div", tag("dt", row.label), tag("dd", row.value, class_="value"), tag("dd", row.drawing, row.note, class_="note"))
        for row in rows
    ]
    return tag("section", tag("h3", title), tag("dl", written)) if written else None


def _level_rows(figures: EngineFigures) -> Iterator[_Row]:
    yield from _share("token level", figures.token_hit_ratio, "of looked-up prompt tokens were in the cache")
    request, gap = figures.request_hit_ratio, figures.hit_ratio_gap
    beside = ""
    if not isinstance(gap, Absent) and abs(gap) >= 0.005:
        beside = f", {abs(gap) * 100:.0f} points {'below' if gap > 0 else 'above'} the token level"
    yield from _estimate("request level", request, f"mean over requests{beside}")
    yield from _estimate("ceiling", figures.hit_ratio_ceiling, "the most that these prompt lengths allow")
    yield from _share("external", figures.external_hit_ratio, "of what was looked up in the KV connector")
    yield from _share("cached prompt", figures.cached_prompt_ratio, "of prompt tokens came from a cache, local or external")


def _request_rows(figures: EngineFigures) -> Iterator[_Row]:
    yield from _estimate("mostly cached", figures.mostly_cached_request_ratio, "had at least half of their prompt cached")
    yield from _estimate("fully cached", figures.full_request_ratio, "computed at most one block")
    yield from _estimate("cold", figures.cold_request_ratio, "got nothing from the cache")


def _pool_rows(figures: EngineFigures) -> Iterator[_Row]:
    filled = "" if isinstance(figures.pool_filled, Absent) else _FILLED[figures.pool_filled]
    if not isinstance(figures.pool_tokens, Absent):
        yield _Row(label="pool", value=f"{figures.pool_tokens:,.0f}", note=f"tokens{filled}")
    if not isinstance(figures.turnover_seconds, Absent):
        yield _Row(
            label="turnover", value=duration(figures.turnover_seconds),
            note="to write the whole pool over: what nobody touches survives no longer",
        )  # fmt: skip
    yield from _share("highest usage", figures.kv_usage_max, "of blocks held by running requests; cached ones do not count")


_FILLED = {True: ", filled since the start", False: ", not filled since the start: eviction is unlikely"}


def _traffic_rows(figures: EngineFigures) -> Iterator[_Row]:
    yield from _count("requests", figures.requests, "finished")
    running, waiting = figures.requests_running, figures.requests_waiting
    yield from _count("running", running, "now")
    yield from _count("waiting", waiting, "now")
    yield from _count("preemptions", figures.preemptions, "requests that lost their blocks and started over")
    sources = figures.prompt_tokens_by_source
    if not isinstance(sources, Absent):
        yield _of_sources(dict(sources))
    if not isinstance(figures.output_per_prompt_token, Absent):
        yield _Row(label="output", value=f"{figures.output_per_prompt_token:.2g}", note="generated per prompt token")
    yield from _share("prefill", figures.prefill_share, "of the requests' inference time")


def _of_sources(sources: dict[str, float]) -> _Row:
    """Return where prompt tokens came from; what an engine names beyond the first few is put together."""
    named = sorted(sources.items(), key=lambda item: (item[0] not in _SOURCES, -item[1]))
    parts, others = named[:_MAX_SOURCES], named[_MAX_SOURCES:]
    if others:
        parts.append(("others", sum(value for _, value in others)))
    total = sum(sources.values())
    words = [f"{cut(_SOURCES.get(source, source), 40)} {value:,.0f}" for source, value in parts]
    legend = (
        tag("li", tag("i", class_=f"part{i}", aria_hidden="true"), text) for i, text in enumerate(words) if parts[i][1] > 0
    )
    drawing = charts.stack([value for _, value in parts], label="by source: " + ", ".join(words)) if total > 0 else None
    return _Row(label="prompt tokens", value=f"{total:,.0f}", note=tag("ul", legend, class_="legend"), drawing=drawing)


_SOURCES = {"local_cache": "from the cache", "external": "from the connector", "computed": "computed"}


def _share(label: str, value: float | Absent, note: str) -> Iterator[_Row]:
    if not isinstance(value, Absent):
        drawing = charts.bar(value, label=percent(value))
        yield _Row(label=label, value=percent(value), note=tag("span", note), drawing=drawing)


def _estimate(label: str, value: Estimate | Absent, note: str) -> Iterator[_Row]:
    if not isinstance(value, Absent):
        bounds = "exact" if value.lower == value.upper else span(value)
        drawing = charts.bar(value.estimate, lower=value.lower, upper=value.upper, label=f"{percent(value.estimate)} ({bounds})")
        note_and_bounds = tag("span", f"{note} ({bounds})")
        yield _Row(label=label, value=percent(value.estimate), note=note_and_bounds, drawing=drawing)


def _count(label: str, value: float | Absent, note: str) -> Iterator[_Row]:
    if not isinstance(value, Absent):
        yield _Row(label=label, value=f"{value:,.0f}", note=note)


def _absent(figures: EngineFigures) -> Markup | None:
    """Return what is absent and why, each reason once."""
    reasons: dict[str, list[str]] = {}
    for figure, reason in figures.to_json()["reasons"].items():
        reasons.setdefault(reason, []).append(_NAMES.get(figure, figure.replace("_", " ")))
    lines = (tag("li", ", ".join(figures_), ": ", tag("em", reason)) for reason, figures_ in reasons.items())
    return tag("section", tag("h3", "Absent, not zero"), tag("ul", lines), class_="absent") if reasons else None


def notes(caveats: Sequence[str]) -> Markup | None:
    """Return what is known to be wrong with a target's counting."""
    lines = (tag("li", caveat.partition(": ")[2] or caveat) for caveat in caveats)
    return tag("section", tag("h3", "Known of this release's counting"), tag("ul", lines), class_="absent") if caveats else None


__all__ = ["engine_article", "name", "notes"]
