"""Write the rules and alerts from their source and alerts/config.yaml."""

import argparse
import sys
from pathlib import Path

from rulebook import alerting, engineonly, recording
from rulebook.document import document
from rulebook.settings import Settings, SettingsError

HERE = Path(__file__).parent
_HEADS = {
    "prefixwatch.rules.yaml": "Recording rules over prefixwatch's counters: per engine, per model, over a fleet.",
    "prefixwatch.alerts.yaml": "Alerts on prefixwatch's figures. They need prefixwatch.rules.yaml.",
    "vllm.rules.yaml": "Token hit ratios from vLLM's own counters, for a Prometheus without prefixwatch.",
}


def rendered(settings: Settings) -> dict[str, str]:
    """Return each file's text by its name. Raises SettingsError for keys that are missing or not used."""
    groups = {
        "prefixwatch.rules.yaml": recording.groups(settings),
        "prefixwatch.alerts.yaml": alerting.groups(settings),
        "vllm.rules.yaml": engineonly.groups(settings),
    }
    if unused := settings.unused():
        raise SettingsError(f"not used, so misspelt: {', '.join(unused)}")
    return {name: document(_HEADS[name], found) for name, found in groups.items()}


def main() -> int:
    """Write the files, or with --check say which are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=HERE / "config.yaml")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is not current")
    arguments = parser.parse_args()
    try:
        files = rendered(Settings.read(arguments.config))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    stale = []
    for name, text in files.items():
        file = arguments.out / name
        if arguments.check:
            stale += [name] if not file.exists() or file.read_text() != text else []
        else:
            file.write_text(text)
    if stale:
        print(f"alerts: not current: {', '.join(stale)}: run make generate", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
