"""The page at `/`."""

from html import escape

from prefixwatch.figures.figure import Absent
from prefixwatch.snapshot import TargetSnapshot


def rendered(targets: list[TargetSnapshot], *, window: str) -> str:
    """Return the page."""
    rows = []
    for t in targets:
        for e in t.engines:
            v = e.token_hit_ratio
            rows.append(f"<li>{escape(t.target)} {escape(e.model_name)} {'-' if isinstance(v, Absent) else v}</li>")
    return "<!doctype html><title>prefixwatch</title><ul>" + "".join(rows) + "</ul>"
