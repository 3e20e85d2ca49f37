"""Write the rules and alerts from their source and alerts/config.yaml."""

import argparse
import sys
from pathlib import Path

from rulebook import alerting, engineonly, recording
from rulebook.document import document
from rulebook.settings import Settings, SettingsError

HERE = Path(__file__).parent
_CONFIG = HERE / "config.yaml"
_HEADS = {
    "prefixwatch.rules.yaml": "Recording rules over prefixwatch's counters: per engine, per model, over a fleet.",
    "prefixwatch.alerts.yaml": "Alerts on prefixwatch's figures. They need prefixwatch.rules.yaml.",
    "vllm.rules.yaml": "Token hit ratios from vLLM's own counters, for a Prometheus without prefixwatch.",
}


def read(file: Path) -> Settings:
    """Read a configuration whose values are of the kinds of those in config.yaml. Raises SettingsError."""
    settings = Settings.read(file)
    settings.check_kinds(Settings.read(_CONFIG))
    warning, critical = (f"alerts.PrefixCacheHitRatioDropped.share_{severity}" for severity in ("warning", "critical"))
    if settings[critical] > settings[warning]:
        raise SettingsError(
            f"{file}: {critical}: {settings[critical]} is above {warning}, {settings[warning]}: what is critical must be lower"
        )
    return settings


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


def stale(files: dict[str, str], folder: Path) -> list[str]:
    """Return the names of files that are not there, or not current."""
    return [name for name, text in files.items() if not (folder / name).exists() or (folder / name).read_text() != text]


def write(files: dict[str, str], folder: Path) -> None:
    """Write the files into a folder, which is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def main() -> int:
    """Write the files, or with --check say which are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=_CONFIG)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is not current")
    arguments = parser.parse_args()
    try:
        files = rendered(read(arguments.config))
        if not arguments.check:
            write(files, arguments.out)
        elif found := stale(files, arguments.out):
            print(f"alerts: not current: {', '.join(found)}: run make generate", file=sys.stderr)
            return 1
    except (SettingsError, OSError) as error:
        print(f"alerts: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
