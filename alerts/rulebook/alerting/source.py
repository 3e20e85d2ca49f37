"""What all alerts are built from: settings, links, and the words of their templates."""

from collections.abc import Mapping
from dataclasses import dataclass

from rulebook.document import Alert, query
from rulebook.settings import Settings

OF_MODEL = "{{ $labels.model_name }}{{ with $labels.namespace }} in {{ . }}{{ end }}"
OF_ENGINE = f"engine {{{{ $labels.engine }}}} of {OF_MODEL} at {{{{ $labels.target }}}}"
MODEL_SELECTOR = "cluster=%q,namespace=%q,model_name=%q"
MODEL_VALUES = "$labels.cluster $labels.namespace $labels.model_name"
PERCENT = "{{ $value | humanizePercentage }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    """Where an alert's page and dashboard are."""

    runbooks: str
    dashboards: str

    def runbook(self, name: str) -> str:
        return f"{self.runbooks.rstrip('/') or 'alerts/runbooks'}/{name}.md"

    def dashboard(self, uid: str, labels: str) -> str:
        variables = "&".join(f"var-{label}={{{{ $labels.{label} | urlquery }}}}" for label in labels.split(", "))
        return f"{self.dashboards.rstrip('/')}/d/{uid}?{variables}"


class Source:
    """Build alerts from the settings; `labels` is the level that an alert speaks about."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._links = _Links(runbooks=settings["links.runbooks"], dashboards=settings["links.dashboards"])
        self._flap = settings["shared.flap"]

    def of(self, name: str, key: str) -> str:
        """Return an alert's threshold as it stands in an expression."""
        return str(self.settings[f"alerts.{name}.{key}"])

    def shared(self, key: str) -> str:
        """Return a threshold of several alerts, likewise."""
        return str(self.settings[f"shared.{key}"])

    def alert(
        self,
        name: str,
        expr: str,
        *,
        why: str,
        severity: str,
        summary: str,
        description: str,
        level: str,
        dashboard: str,
        labels: Mapping[str, str] | None = None,
    ) -> Alert:
        """Return an alert; its `for` comes from the settings, its links lead to `level`'s labels."""
        return Alert(
            name=name,
            expr=query(expr),
            why=why,
            severity=severity,
            lasting=self.of(name, "for"),
            flap=self._flap,
            summary=summary,
            description=description,
            runbook_url=self._links.runbook(name),
            dashboard_url=self._links.dashboard(dashboard, level),
            labels=labels or {},
        )


def asked(expr: str, values: str, shown: str = "humanizePercentage") -> str:
    """Return a template that shows another series of the same labels, and nothing where it is not there."""
    return f"{{{{ with printf {expr} {values} | query }}}}{{{{ . | first | value | {shown} }}}}{{{{ else }}}}unknown{{{{ end }}}}"
