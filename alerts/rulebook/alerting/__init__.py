"""The alerts: what must hold, for how long, and what is said to whoever is called."""

from rulebook.alerting import engine, exporter, pool, ratio
from rulebook.alerting.source import Source
from rulebook.document import Group
from rulebook.settings import Settings


def groups(settings: Settings) -> list[Group]:
    """Return the alerts by area."""
    source, interval = Source(settings), settings["intervals.alerts"]
    areas = {
        "ratio": ratio.alerts(source),
        "pool": pool.alerts(source),
        "engine": engine.alerts(source),
        "exporter": exporter.alerts(source),
    }
    return [Group(name=f"prefixwatch.alerts.{area}", interval=interval, rules=rules) for area, rules in areas.items()]
