"""The figures of an engine as rows: what it is called, its value, what that says, a drawing of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prefixwatch.figures.figure import Absent, Estimate
from prefixwatch.figures.wording import duration, percent, span
from prefixwatch.overview import charts
from prefixwatch.overview.markup import Content, Markup, cut, tag
from prefixwatch.snapshot import EngineFigures

_MAX_OTHERS = 60
_MEDIAN = 0.5
_FILLED = {True: ", filled since the start", False: ", not filled since the start: eviction is unlikely"}
_SOURCES = {"local_cache": "from the cache", "external": "from the connector", "computed": "computed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One figure: what it is called, its value, what that says."""

    label: str
    value: str
    note: Content = None
    drawing: Markup | None = None


def sections(figures: EngineFigures) -> Iterator[Markup | None]:
    """Yield the figures by what they are about: levels, requests, pool, traffic. Absent ones are left out."""
    yield _section("Token and request level", _level_rows(figures))
    yield _section("Requests", _request_rows(figures))
    yield _section("KV pool and pressure", _pool_rows(figures))
    yield _section("Traffic", _traffic_rows(figures))


def blocks(figures: EngineFigures) -> Markup | None:
    """Return what evicted blocks went through, and what cache events say of misses."""
    return _section("Blocks", _block_rows(figures))


def _section(title: str, rows: Iterator[_Row]) -> Markup | None:
    written = [
        tag(
            "div",
            tag("dt", row.label),
            tag("dd", row.value, class_="value"),
            tag("dd", row.drawing, row.note, class_="note"),
        )
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
    yield from _share(
        "cached prompt", figures.cached_prompt_ratio, "of prompt tokens came from a cache, local or external"
    )


def _request_rows(figures: EngineFigures) -> Iterator[_Row]:
    yield from _estimate(
        "mostly cached", figures.mostly_cached_request_ratio, "had at least half of their prompt cached"
    )
    yield from _estimate("fully cached", figures.full_request_ratio, "computed at most one block")
    yield from _estimate("cold", figures.cold_request_ratio, "got nothing from the cache")


def _pool_rows(figures: EngineFigures) -> Iterator[_Row]:
    filled = "" if isinstance(figures.pool_filled, Absent) else _FILLED[figures.pool_filled]
    if not isinstance(figures.pool_tokens, Absent):
        yield _Row(label="pool", value=f"{figures.pool_tokens:,.0f}", note=f"tokens{filled}")
    if not isinstance(figures.turnover_seconds, Absent):
        yield _Row(
            label="turnover",
            value=duration(figures.turnover_seconds),
            note="to write the whole pool over: what nobody touches survives no longer",
        )
    yield from _share(
        "highest usage", figures.kv_usage_max, "of blocks held by running requests; cached ones do not count"
    )
    yield from _count("preemptions", figures.preemptions, "requests that lost their blocks and started over")
    yield from _count("running", figures.requests_running, "requests, now")
    yield from _count("waiting", figures.requests_waiting, "requests, now")


def _block_rows(figures: EngineFigures) -> Iterator[_Row]:
    found = figures.residency
    if not isinstance(found, Absent):
        yield from _quantiles(
            "lifetime", found.lifetime_seconds, "of evicted blocks, the partly filled last one of each request included"
        )
        yield from _quantiles("idle", found.idle_seconds, "before eviction")
        yield from _quantiles("reuse gap", found.reuse_gap_seconds, "between uses of a block that was evicted later")
    yield from _share(
        "avoidable misses", figures.avoidable_miss_ratio, "of stored blocks had been there and were evicted"
    )
    if not isinstance(figures.working_set_ratio, Absent):
        value = f"{figures.working_set_ratio:.2g}"
        yield _Row(label="working set", value=value, note="times the pool: distinct blocks stored in the window")


def _traffic_rows(figures: EngineFigures) -> Iterator[_Row]:
    yield from _count("requests", figures.requests, "finished")
    sources = figures.prompt_tokens_by_source
    if not isinstance(sources, Absent):
        yield _of_sources(sources)
    if not isinstance(figures.output_per_prompt_token, Absent):
        yield _Row(label="output", value=f"{figures.output_per_prompt_token:.2g}", note="generated per prompt token")
    yield from _share("prefill", figures.prefill_share, "of the requests' inference time")
    saved, share = figures.prefill_seconds_saved, figures.prefill_saved_share
    if not isinstance(saved, Absent):
        of_all = "" if isinstance(share, Absent) else f", {percent(share)} of what it would be without"
        error = duration(saved.standard_error)
        note = f"of prefill that the cache spared, \N{PLUS-MINUS SIGN} {error}, in request-seconds{of_all}"
        yield _Row(label="saved", value=duration(saved.estimate), note=note)


def _of_sources(sources: Mapping[str, float]) -> _Row:
    """Return where prompt tokens came from. A source has its place and colour; unknown ones are put together."""
    parts = [sources.get(source, 0.0) for source in _SOURCES]
    words = list(_SOURCES.values())
    others = sources.keys() - _SOURCES.keys()
    if others:
        parts.append(sum(sources[source] for source in others))
        words.append(cut(", ".join(sorted(others)), _MAX_OTHERS))
    total = sum(parts)
    written = [(i, f"{word} {part:,.0f}") for i, (word, part) in enumerate(zip(words, parts, strict=True)) if part > 0]
    legend = (tag("li", tag("i", class_=f"part{i}", aria_hidden="true"), text) for i, text in written)
    drawing = charts.stack(parts, label="by source: " + ", ".join(text for _, text in written)) if total > 0 else None
    return _Row(
        label="prompt tokens",
        value=f"{total:,.0f}",
        note=tag("ul", legend, class_="legend") if written else None,
        drawing=drawing,
    )


def _share(label: str, value: float | Absent, note: str) -> Iterator[_Row]:
    if not isinstance(value, Absent):
        drawing = charts.bar(value, label=percent(value))
        yield _Row(label=label, value=percent(value), note=tag("span", note), drawing=drawing)


def _estimate(label: str, value: Estimate | Absent, note: str) -> Iterator[_Row]:
    if not isinstance(value, Absent):
        bounds = "exact" if value.lower == value.upper else span(value)
        drawing = charts.bar(
            value.estimate, lower=value.lower, upper=value.upper, label=f"{percent(value.estimate)} ({bounds})"
        )
        note_and_bounds = tag("span", f"{note} ({bounds})")
        yield _Row(label=label, value=percent(value.estimate), note=note_and_bounds, drawing=drawing)


def _quantiles(label: str, seconds: Mapping[float, float], note: str) -> Iterator[_Row]:
    """Yield the median, and the other quantiles in words."""
    if _MEDIAN in seconds:
        others = ", ".join(
            f"{share * 100:g} % within {duration(s)}" for share, s in seconds.items() if share != _MEDIAN
        )
        yield _Row(label=label, value=duration(seconds[_MEDIAN]), note=f"{note}, median; {others}")


def _count(label: str, value: float | Absent, note: str) -> Iterator[_Row]:
    if not isinstance(value, Absent):
        yield _Row(label=label, value=f"{value:,.0f}", note=note)
