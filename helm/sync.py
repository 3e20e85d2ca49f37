"""Write what the chart takes from alerts/ and dashboards/, or with --check say which file is not current."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "alerts"))

from chartfiles import defaults, placeholders, schema  # noqa: E402
from rulebook.settings import Settings, SettingsError  # noqa: E402

CHART = ROOT / "helm/prefixwatch"
CONFIG = ROOT / "alerts/config.yaml"
BOARDS = ROOT / "dashboards/generated"


def written(chart: Path) -> dict[Path, str]:
    """Return the text of each file by its path. Raises SettingsError, and ValueError where values.yaml has no region."""
    settings = Settings.read(CONFIG)
    values, schemas = chart / "values.yaml", chart / "values.schema.json"
    files = {chart / "files/dashboards" / board.name: board.read_text() for board in sorted(BOARDS.glob("*.json"))}
    files |= {chart / "files/rules" / name: text for name, text in placeholders.rules(CONFIG).items()}
    files[values] = defaults.replaced(values.read_text(), settings)
    files[schemas] = schema.replaced(schemas.read_text(), settings)
    return files


def left_over(chart: Path, files: dict[Path, str]) -> list[Path]:
    """Return the files that have no source any more."""
    return sorted(
        {file for folder in ("dashboards", "rules") for file in (chart / "files" / folder).glob("*")} - files.keys()
    )


def main() -> int:
    """Write the files, or with --check say which are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chart", type=Path, default=CHART, help="the chart's folder")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is not current")
    arguments = parser.parse_args()
    chart: Path = arguments.chart
    try:
        files = written(chart)
    except (SettingsError, ValueError, OSError) as error:
        print(f"helm: {error}", file=sys.stderr)
        return 2
    surplus = left_over(chart, files)
    stale = {file: text for file, text in files.items() if not file.exists() or file.read_text() != text}
    if arguments.check:
        if found := sorted(str(file.relative_to(chart)) for file in [*stale, *surplus]):
            print(f"helm: not current: {', '.join(found)}: run make generate", file=sys.stderr)
        return 1 if found else 0
    for file in surplus:
        file.unlink()
    for file, text in stale.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
