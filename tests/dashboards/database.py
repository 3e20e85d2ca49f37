"""A real Prometheus loaded with samples of the past, and with what the recording rules and alerts make of them."""

import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

from dashboards.stories import Sample, series
from drawing.answers import Server, Span
from lib.rulefile import alerts, recorded
from prefixwatch.config import Duration
from prometheus.server import free_port

RULE_SECONDS = 30.0
PATIENCE = 30.0
_RECORDED = re.compile(r"\w+:prefixwatch_\w+:\w+")


def load(samples: Iterable[Sample], spans: Sequence[Span], folder: Path, *, wanted: Iterable[str]) -> None:
    """Fill a folder. `spans`: when rules are evaluated; `wanted`: queries whose recorded series are needed, and theirs."""
    _backfill(samples, folder)
    for names in _passes([*wanted, *(rule["expr"] for rule in alerts())]):
        with serving(folder) as url:
            found = list(_evaluated({name: recorded()[name].expr for name in names}, Server(url), spans))
        _backfill(found, folder)
    with serving(folder) as url:
        firing = list(_firing(Server(url), spans))
    _backfill(firing, folder)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run a server over what was loaded; gives its address."""
    address, log = f"127.0.0.1:{free_port()}", folder / "prometheus.log"
    (folder / "prometheus.yml").write_text("{}\n")
    command = (
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y",
    )  # fmt: skip
    with log.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as process:
        try:
            _wait(f"http://{address}/-/ready", process, log)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.01)


def _backfill(samples: Iterable[Sample], folder: Path) -> None:
    source = folder / "samples.om"
    with source.open("w") as stream:
        stream.writelines(f"{name} {value!r} {at:.3f}\n" for name, at, value in sorted(samples, key=itemgetter(1)))
        stream.write("# EOF\n")
    if source.stat().st_size < 10:
        return
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", source, folder / "data"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _passes(queries: Iterable[str]) -> list[list[str]]:
    """Return the recorded series that queries need, those first that need no other."""
    depths: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in depths:
            depths[name] = 1 + max((depth(other) for other in _RECORDED.findall(recorded()[name].expr)), default=0)
        return depths[name]

    for query in queries:
        for name in _RECORDED.findall(query):
            depth(name)
    return [
        [name for name in depths if depths[name] == level] for level in range(1, max(depths.values(), default=0) + 1)
    ]


def _evaluated(rules: Mapping[str, str], server: Server, spans: Sequence[Span]) -> Iterator[Sample]:
    for name, expr in rules.items():
        for span in spans:
            for labels, points in server.range(expr, span, step=RULE_SECONDS):
                text = series(name, {key: value for key, value in labels.items() if key != "__name__"})
                yield from ((text, at, value) for at, value in points)


def _firing(server: Server, spans: Sequence[Span]) -> Iterator[Sample]:
    """Yield ALERTS as rules with their `for` write it."""
    for rule in alerts():
        lasting = Duration.parse(rule["for"])
        for labels, points in server.range(rule["expr"], spans[0], step=RULE_SECONDS):
            stated = {key: value for key, value in labels.items() if key != "__name__"} | rule["labels"]
            text = series("ALERTS", {**stated, "alertname": rule["alert"], "alertstate": "firing"})
            since, before = points[0][0], points[0][0]
            for at, _ in points:
                since = since if at - before <= 1.5 * RULE_SECONDS else at
                before = at
                if at - since >= lasting:
                    yield text, at, 1.0
