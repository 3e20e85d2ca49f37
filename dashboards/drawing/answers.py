"""A board's panels with what their queries answer, as Grafana would ask them."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Choice = Mapping[str, str]

SCRAPE_SECONDS = 15.0
POINTS = 240
"""How many points wide a chart is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series that a query gave: (unix seconds, value) in order."""

    labels: Mapping[str, str]
    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time range that is looked at, unix seconds."""

    start: float
    end: float

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(SCRAPE_SECONDS, (self.end - self.start) / POINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A panel, where it stands, and the series of each of its queries."""

    panel: Json
    title: str
    x: int
    y: int
    w: int
    h: int
    answers: Sequence[Sequence[Series]]

    @property
    def kind(self) -> str:
        """The type of the panel."""
        return str(self.panel["type"])


class Server:
    """Ask a running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def instant(self, query: str, time: float) -> list[tuple[Mapping[str, str], list[tuple[float, float]]]]:
        """Return (labels, one point) of each series."""
        found = self._get("query", query=query, time=f"{time:.3f}")
        return [(one["metric"], [(float(one["value"][0]), float(one["value"][1]))]) for one in found["result"]]

    def range(
        self, query: str, span: Span, *, step: float | None = None
    ) -> list[tuple[Mapping[str, str], list[tuple[float, float]]]]:
        """Return (labels, points) of each series."""
        found = self._get(
            "query_range",
            query=query,
            start=f"{span.start:.3f}",
            end=f"{span.end:.3f}",
            step=f"{step or span.step:.3f}",
        )
        return [(one["metric"], [(float(t), float(v)) for t, v in one["values"]]) for one in found["result"]]

    def values(self, definition: str, span: Span) -> list[str]:
        """Return what a variable's `label_values(selector, label)` gives."""
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", definition)
        assert match, definition
        path = f"label/{match[2]}/values"
        found: list[str] = self._get(path, **{"match[]": match[1], "start": str(span.start), "end": str(span.end)})
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        body = urllib.parse.urlencode(parameters)
        is_get = path.startswith("label/")
        url = f"{self._url}/api/v1/{path}" + (f"?{body}" if is_get else "")
        request = urllib.request.Request(url, data=None if is_get else body.encode())  # noqa: S310  the address is the caller's
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{parameters.get('query', path)}: {error.read().decode()}") from error


def substituted(text: str, choice: Choice, step: float = SCRAPE_SECONDS) -> str:
    """Put values for a board's variables. `choice`: regular expressions; what is not in it means All."""
    interval = max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)
    known = {"__rate_interval": f"{interval:.0f}s", "__interval": f"{step:.0f}s", **choice}
    # $1 of label_replace is no variable: Grafana leaves what it does not know.
    return re.sub(r"\$(?:\{([a-z_]+)\}|([a-z_]+))", lambda match: known.get(match[1] or match[2], ".*"), text)


def answered(board: Json, server: Server, span: Span, choice: Choice) -> Iterator[Answered]:
    """Yield the panels of a board with their answers, rows that repeat as often as they do."""
    down, repeated = 0, list[Json]()
    panels = [*board["panels"], {"type": "row", "gridPos": {"x": 0, "y": 10**6, "w": 24, "h": 1}}]
    repeat = ""
    for panel in panels:
        if panel["type"] == "row" and repeat:
            variable = next(one for one in board["templating"]["list"] if one["name"] == repeat)
            values = server.values(substituted(variable["definition"], choice), span)
            values = [value for value in values if re.fullmatch(choice.get(repeat, ".*"), value)]
            top = repeated[0]["gridPos"]["y"]
            height = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in repeated) - top
            for position, value in enumerate(values):
                for one in repeated:
                    yield _answered(one, server, span, {**choice, repeat: value}, down + position * height)
            down += (len(values) - 1) * height
            repeated, repeat = [], ""
        if panel["type"] == "row" and panel.get("repeat"):
            repeat = panel["repeat"]
        if repeat:
            repeated.append(panel)
        elif panel["gridPos"]["y"] < 10**6:
            yield _answered(panel, server, span, choice, down)


def annotated(board: Json, server: Server, span: Span, choice: Choice) -> list[tuple[str, str, list[float]]]:
    """Return (name, colour, times at which it begins) of each annotation that asks Prometheus."""
    found = []
    for one in board["annotations"]["list"]:
        if "expr" not in one:
            continue
        starts = []
        for _, points in server.range(substituted(one["expr"], choice, span.step), span):
            times = [t for t, _ in points]
            starts += [t for t, before in zip(times, [0.0, *times], strict=False) if t - before > 2 * span.step]
        found.append((one["name"], one["iconColor"], sorted(starts)))
    return found


def _answered(panel: Json, server: Server, span: Span, choice: Choice, down: int) -> Answered:
    place = panel["gridPos"]
    return Answered(
        panel=panel, title=substituted(panel.get("title", ""), choice),
        x=place["x"], y=place["y"] + down, w=place["w"], h=place["h"],
        answers=[asked(target, server, span, choice) for target in panel.get("targets", ())],
    )  # fmt: skip


def asked(target: Json, server: Server, span: Span, choice: Choice) -> list[Series]:
    """Return what one query of a panel gives."""
    query = substituted(target["expr"], choice, span.step)
    found = server.instant(query, span.end) if target["instant"] else server.range(query, span)
    return [
        Series(labels=labels, name=_named(target["legendFormat"], labels), points=points) for labels, points in found
    ]


def _named(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), form).strip()
