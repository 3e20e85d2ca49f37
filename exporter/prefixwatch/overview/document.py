"""The whole page, and the header that goes with it. No clock: the time is part of what is shown."""

import base64
import hashlib
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources

from prefixwatch import __version__
from prefixwatch.figures.wording import percent
from prefixwatch.overview.engine import engine_article, notes
from prefixwatch.overview.listing import Row, filters, listing, rows_of
from prefixwatch.overview.markup import Content, Markup, cut, joined, tag
from prefixwatch.overview.state import headline, state_label, trouble
from prefixwatch.overview.views import MAX_IN_FULL, Overview, TargetView

_FILES = resources.files("prefixwatch.overview")
_STYLE = Markup((_FILES / "overview.css").read_text("utf-8"))
_SCRIPT = Markup((_FILES / "refresh.js").read_text("utf-8"))
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16'"
    " rx='3' fill='%230b62b8'/%3E%3Cpath d='M3 5h10M3 8h7M3 11h4' stroke='%23fff' stroke-width='2'/%3E%3C/svg%3E"
)


def _source(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


HEADERS = {
    # One style sheet and one script, by their hashes: nothing that a label value could smuggle in runs.
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


def rendered(overview: Overview) -> str:
    """Return the page."""
    rows = rows_of(overview)
    seconds = f"{overview.refresh:g}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", _title(rows)),
        tag("link", rel="icon", href=Markup(_ICON)),
        tag("style", _STYLE),
        tag("noscript", tag("meta", http_equiv="refresh", content=seconds)),
    )
    live = tag(
        "label", tag("input", type="checkbox", id="live", checked=True), f" refresh every {seconds} s", hidden=True
    )
    top = tag("header", tag("p", "prefixwatch", class_="wordmark"), _links(), live, class_="top")
    lost = tag(
        "p",
        "prefixwatch does not answer: what stands here is as old as its time says.",
        id="lost",
        role="status",
        hidden=True,
    )
    body = tag(
        "body",
        top,
        lost,
        tag("main", _main(rows, overview)),
        tag("script", _SCRIPT),
        data_refresh=seconds,
        data_version=__version__,
    )
    return f"<!doctype html>{tag('html', head, body, lang='en')}"


def _links() -> Markup:
    addresses = ("metrics", "api/v1/status", "healthz")
    return tag(
        "nav",
        tag("ul", (tag("li", tag("a", f"/{path}", href=path)) for path in addresses)),
        aria_label="Of this exporter",
    )


def _title(rows: list[Row]) -> str:
    if len(rows) == 1 and rows[0][1] is not None:
        figures = rows[0][1].figures
        ratio = f"{percent(figures.token_hit_ratio)} " if isinstance(figures.token_hit_ratio, float) else ""
        return f"{ratio}{cut(figures.model_name, 40)} \N{MIDDLE DOT} prefixwatch"
    return "prefixwatch"


def _main(rows: list[Row], overview: Overview) -> Iterator[Content]:
    moment = datetime.fromtimestamp(overview.time, UTC)
    yield tag(
        "h1",
        "Prefix cache",
        tag("small", " as of ", tag("time", f"{moment:%Y-%m-%d %H:%M:%S} UTC", datetime=moment.isoformat())),
    )
    if overview.is_targets_file_good is False:
        yield tag(
            "p", "The targets file cannot be used: the log says why. What was known of it stays.", class_="trouble bad"
        )
    yield filters(overview)
    if not overview.targets:
        yield _without_targets(overview)
    elif not rows:
        yield tag("p", "Nothing here is of this choice. ", tag("a", "Show all", href="."), class_="empty")
    elif len(rows) > MAX_IN_FULL and overview.choice.target is None:
        yield from listing(rows, overview)
    else:
        for target, group in itertools.groupby(rows, key=lambda row: row[0]):
            yield _target(target, list(group), overview)


def _without_targets(overview: Overview) -> Markup:
    if not overview.is_discovered:
        return tag("p", "Looking for targets.", class_="empty")
    return tag(
        "p", "There are no targets. Name one, like ", tag("code", "prefixwatch run http://localhost:8000/metrics"),
        ", or see what the configuration's DNS name or targets file gives.", class_="empty",
    )  # fmt: skip


def _target(target: TargetView, rows: list[Row], overview: Overview) -> Markup:
    engines = [engine for _, engine in rows if engine is not None]
    if not engines:
        top = tag("header", headline(target, None, level="h2"), state_label(target.state))
        return tag("article", top, trouble(target, overview.time), notes(target.snapshot.caveats))
    return joined(([engine_article(target, engine, overview) for engine in engines], notes(target.snapshot.caveats)))
