"""Draw previews of the boards over the demo's scenarios, on a real Prometheus; the README's picture among them.

python tests/dashboards/pictures.py [SCENARIO ...] [--board overview] [--to FOLDER] [--minutes 90] [--cache FOLDER]
python tests/dashboards/pictures.py --readme      writes docs/dashboard-overview.png

Each scenario runs on two stand-in engines for --minutes of simulated time, of which the last hour is drawn; a
minute of simulated time takes about a second. --cache keeps the traces.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "dashboards")]

import preview  # noqa: E402
from dashboards.database import load, serving  # noqa: E402
from dashboards.stories import DAY, Sample, Story, moved  # noqa: E402
from drawing.answers import Span  # noqa: E402
from generate import rendered  # noqa: E402
from prefixwatch.demo.offline import EPOCH, record  # noqa: E402
from prefixwatch.replaying import RecordedFeed  # noqa: E402
from recorded import pages_of  # noqa: E402

# Two replicas each; in the one a shared cause, in the other one of them alone.
SCENARIOS = {
    "healthy": (("healthy", 1), ("healthy", 2)),
    "thrash_low_usage": (("thrash_low_usage", 1), ("healthy", 2)),
    "template_change": (("template_change", 1), ("template_change", 2)),
}
WITH_EVENTS = frozenset({"thrash_low_usage", "template_change"})
PERIOD = 5.0


def trace(scenario: str, seed: int, minutes: float, cache: Path) -> Path:
    """Return the folder of a stand-in's trace, recorded if it is not yet."""
    folder = cache / f"{scenario}-{seed}-{minutes:g}"
    if not (folder / "truth.json").exists():
        record(scenario, folder, seed=seed, seconds=60 * minutes, period=PERIOD)
    return folder


def told(cluster: str, minutes: float, cache: Path) -> list[Sample]:
    """Return a scenario's samples, and its first half again a day before: the baseline."""
    found: list[Sample] = []
    for number, (scenario, seed) in enumerate(SCENARIOS[cluster], start=1):
        folder = trace(scenario, seed, minutes, cache)
        pages = ((page.time, page) for page in pages_of(folder))
        feed = RecordedFeed(folder) if cluster in WITH_EVENTS else None
        story = Story(cluster=cluster, target=f"gpu-{number}:8000", pages=pages, feed=feed)
        samples = list(story.samples())
        found += samples
        found += moved((one for one in samples if one[1] < EPOCH + 30 * minutes), DAY)
    return found


def main() -> None:
    """Load what is asked for, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", default=[])
    parser.add_argument("--board", action="append", choices=preview.BOARDS)
    parser.add_argument("--to", type=Path, default=Path("previews"))
    parser.add_argument("--minutes", type=float, default=80)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--readme", action="store_true", help="write docs/dashboard-overview.png and nothing else")
    wanted = parser.parse_args()
    if wanted.readme:
        wanted.scenario, wanted.board = ["thrash_low_usage"], ["overview"]
    end = EPOCH + 60 * wanted.minutes
    spans = [Span(start=EPOCH, end=end), Span(start=EPOCH - DAY, end=end - DAY)]
    with tempfile.TemporaryDirectory() as scratch:
        folder, cache = Path(scratch), wanted.cache or Path(scratch) / "traces"
        scenarios = wanted.scenario or list(SCENARIOS)
        samples = [sample for scenario in scenarios for sample in told(scenario, wanted.minutes, cache)]
        load(samples, spans, folder, wanted=rendered().values())
        with serving(folder) as url:
            for scenario in scenarios:
                for board in wanted.board or preview.BOARDS:
                    file = wanted.to / f"{scenario}-{board}.png"
                    if wanted.readme:
                        file = ROOT / "docs" / "dashboard-overview.png"
                    choice = {"cluster": scenario}
                    size = preview.preview(url, board, Span(start=end - 3600, end=end), choice, file, note=scenario)
                    print(f"{file}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
