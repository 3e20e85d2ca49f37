"""Values as Grafana writes them, near enough for a preview."""

_SECONDS = ((1, "s"), (60, "min"), (3600, "h"), (86400, "d"))
_SUFFIXES = {"cps": "/s", "reqps": " req/s", "cpm": "/min", "none": "", "locale": "", "": ""}


def written(value: float, unit: str, *, now: float = 0.0, decimals: int | None = None) -> str:
    """Return a value in its unit."""
    if unit == "percentunit":
        return f"{100 * value:.{1 if decimals is None else decimals}f} %".replace("-0.0 ", "0.0 ")
    if unit == "s":
        return _duration(value)
    if unit == "dateTimeFromNow":
        return f"{_duration(max(0.0, now - value / 1000))} ago"
    if unit == "locale":
        return f"{value:,.0f}"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.1f} k{_SUFFIXES[unit]}"
    return f"{value:.3g}{_SUFFIXES[unit]}" if abs(value) < 1000 else f"{value:.0f}{_SUFFIXES[unit]}"


def _duration(value: float) -> str:
    if abs(value) < 1:
        return f"{1000 * value:.3g} ms"
    size, unit = next((size, unit) for size, unit in reversed(_SECONDS) if abs(value) >= size)
    return f"{value / size:.3g} {unit}"
