"""Draw boards from a running Prometheus: a preview, for looking at a board without Grafana.

python dashboards/preview.py URL [--board overview|diagnosis|kv-pool|fleet] [--minutes 60] [--until UNIX]
    [--choose model_name=tiny] [--to FOLDER]
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from drawing.answers import Choice, Server, Span, annotated, answered
from drawing.board import drawn, saved

GENERATED = Path(__file__).parent / "generated"
BOARDS = ("overview", "diagnosis", "kv-pool", "fleet")


def preview(url: str, board: str, span: Span, choice: Choice, file: Path, note: str = "") -> int:
    """Draw one board into a file; return its size in bytes."""
    whole, server = json.loads((GENERATED / f"prefixwatch-{board}.json").read_text()), Server(url)
    figure = drawn(
        whole, answered(whole, server, span, choice), span, annotated(whole, server, span, choice), note=note
    )
    return saved(figure, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a Prometheus that scrapes prefixwatch and evaluates its rules")
    parser.add_argument("--board", action="append", choices=BOARDS, help="all of them by default")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--until", type=float, help="unix seconds; now by default")
    parser.add_argument("--choose", action="append", default=[], metavar="NAME=REGEX", help="a variable's value")
    parser.add_argument("--to", type=Path, default=Path())
    wanted = parser.parse_args(arguments)
    end = wanted.until or time.time()
    span, choice = Span(start=end - 60 * wanted.minutes, end=end), dict(one.split("=", 1) for one in wanted.choose)
    for board in wanted.board or BOARDS:
        file = wanted.to / f"prefixwatch-{board}.png"
        print(f"{file}: {preview(wanted.url, board, span, choice, file) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
