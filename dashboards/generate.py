"""Write the boards as Grafana's JSON, or with --check say which file is not current."""

import argparse
import sys
from pathlib import Path

from boards import diagnosis, fleet, kv_pool, overview
from lib.errors import BoardError

HERE = Path(__file__).parent
GENERATED = HERE / "generated"
BOARDS = (overview.BOARD, diagnosis.BOARD, kv_pool.BOARD, fleet.BOARD)


def rendered() -> dict[str, str]:
    """Return each file's text by its name."""
    return {f"{board.uid}.json": board.text() for board in BOARDS}


def main() -> int:
    """Write the files, or with --check say which are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=GENERATED)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is not current")
    arguments = parser.parse_args()
    try:
        files = rendered()
    except BoardError as error:
        print(f"dashboards: {error}", file=sys.stderr)
        return 2
    stale = sorted({file.name for file in arguments.out.glob("*.json")} - files.keys())
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        file = arguments.out / name
        if not arguments.check:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            stale.append(name)
    if arguments.check and stale:
        print(f"dashboards: not current: {', '.join(stale)}: run make generate", file=sys.stderr)
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
