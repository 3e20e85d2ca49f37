"""Where the page of an alert is: the address that the rules' configuration states, else the path in the repository."""

from lib.errors import BoardError
from lib.metrics import Expr
from lib.rulefile import ALERTS, alerts, settings

_REPOSITORY = "alerts/runbooks"


def runbook(name: str) -> str:
    """Return Markdown that leads to an alert's page. Raises BoardError where there is no such alert."""
    if name not in {rule["alert"] for rule in alerts()}:
        raise BoardError(f"{ALERTS}: there is no alert {name}")
    base = _base()
    return f"[{name}]({base}/{name}.md)" if base else f"`{_REPOSITORY}/{name}.md`"


def with_runbook(firing: Expr) -> Expr:
    """Return alerts with a label `runbook`: where their page is."""
    base = _base() or _REPOSITORY
    text = f'label_replace({firing}, "runbook", "{base}/$1.md", "alertname", "(.+)")'
    return Expr(text, firing.labels | {"runbook"})


def links() -> tuple[tuple[str, str], ...]:
    """Return the links of a table's column `runbook`: none where there is only a path."""
    return (("Open the runbook", "${__value.raw}"),) if _base() else ()


def _base() -> str:
    return str(settings()["links"]["runbooks"]["value"]).rstrip("/")
