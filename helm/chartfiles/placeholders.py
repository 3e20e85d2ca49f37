"""The rules with `${path}` where a setting stands; the chart's templates/_rules.tpl puts the values there.

`${` occurs neither in PromQL nor in the templates of annotations.
"""

from pathlib import Path

from render import rendered
from rulebook.settings import Settings

FILES = ("prefixwatch.rules.yaml", "prefixwatch.alerts.yaml")
"""Not vllm.rules.yaml, which is for a Prometheus without the exporter."""
_HEAD = "# The chart's own copy: ${...} stands for a value of rules.settings. Written by helm/sync.py.\n"


class Placeholders(Settings):
    """Settings that give their own paths, for whoever fills them in later."""

    def __getitem__(self, path: str) -> str:
        """Return what stands for the value at a path. Raises SettingsError where there is none."""
        super().__getitem__(path)
        return f"${{{path}}}"

    def seconds(self, path: str) -> str:
        """Return what stands for a duration as a number of seconds."""
        self[path]
        return f"${{seconds {path}}}"

    def any_of(self, path: str) -> str:
        """Return what stands for a regular expression that matches the names in a list."""
        return self[path]

    def if_any(self, path: str, text: str) -> str:
        """Return the text between marks: it goes where the list is empty."""
        self[path]
        return f"${{if {path}}}{text}${{end {path}}}"


def rules(config: Path) -> dict[str, str]:
    """Return each rules file of the chart by its name. Raises SettingsError."""
    files = rendered(Placeholders.read(config))
    return {name: _HEAD + files[name] for name in FILES}
