"""The families of a page that are not the engine's: Python, process and HTTP."""

from collections.abc import Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from prefixwatch.demo.tallies import Histogram

_HANDLER = "/v1/completions"
_BYTES_A_TOKEN = 5
_FINE = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
)  # fmt: skip
_COARSE = (0.1, 0.5, 1.0)


class HttpTally:
    """What the API server's instrumentation counts, for the one handler that is used."""

    def __init__(self) -> None:
        self.fine = Histogram(_FINE)
        self.coarse = Histogram(_COARSE)
        self.requests = 0
        self.request_bytes = 0

    def record(self, *, seconds: float, prompt_tokens: int) -> None:
        """Add one answered request."""
        self.requests += 1
        self.request_bytes += prompt_tokens * _BYTES_A_TOKEN
        self.fine.observe(seconds)
        self.coarse.observe(seconds)


def process_families(*, started: float, cpu_seconds: float) -> Iterable[Metric]:
    """Yield the Python and process families; only start time and CPU time mean anything."""
    for name, help_text in (
        ("python_gc_objects_collected", "Objects collected during gc"),
        ("python_gc_objects_uncollectable", "Uncollectable objects found during GC"),
        ("python_gc_collections", "Number of times this generation was collected"),
    ):
        family = CounterMetricFamily(name, help_text, labels=["generation"])
        for generation in "012":
            family.add_metric([generation], 0.0)
        yield family
    info = GaugeMetricFamily(
        "python_info",
        "Python platform information",
        labels=["implementation", "major", "minor", "patchlevel", "version"],
    )
    info.add_metric(["CPython", "3", "11", "7", "3.11.7"], 1.0)
    yield info
    yield GaugeMetricFamily("process_virtual_memory_bytes", "Virtual memory size in bytes.", 2.1e9)
    yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory size in bytes.", 6.4e8)
    yield GaugeMetricFamily(
        "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", started
    )
    yield CounterMetricFamily("process_cpu_seconds", "Total user and system CPU time spent in seconds.", cpu_seconds)
    yield GaugeMetricFamily("process_open_fds", "Number of open file descriptors.", 34.0)
    yield GaugeMetricFamily("process_max_fds", "Maximum number of open file descriptors.", 20_000.0)


def http_families(tally: HttpTally, *, created: float) -> Iterable[Metric]:
    """Yield the HTTP families; the labelled ones have no series before the first request."""
    requests = CounterMetricFamily(
        "http_requests",
        "Total number of requests by method, status and handler.",
        labels=["handler", "method", "status"],
    )
    if tally.requests:
        requests.add_metric([_HANDLER, "POST", "2xx"], tally.requests, created=created)
    yield requests
    ignored = "Only value of header is respected. Otherwise ignored. No percentile calculated. "
    for name, direction, total in (
        ("http_request_size_bytes", "incoming requests", tally.request_bytes),
        ("http_response_size_bytes", "outgoing responses", 0),
    ):
        help_text = f"Content length of {direction} by handler. {ignored}"
        sizes = SummaryMetricFamily(name, help_text, labels=["handler"])
        if tally.requests:
            sizes.add_metric([_HANDLER], count_value=tally.requests, sum_value=total)
            sizes.add_sample(f"{name}_created", {"handler": _HANDLER}, created)
        yield sizes
    yield _duration_family(
        "http_request_duration_highr_seconds",
        "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
        tally.fine,
        {},
        created,
    )
    coarse_labels = {"handler": _HANDLER, "method": "POST"}
    yield _duration_family(
        "http_request_duration_seconds",
        "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
        tally.coarse if tally.requests else None,
        coarse_labels,
        created,
    )


def _duration_family(
    name: str, help_text: str, histogram: Histogram | None, labels: dict[str, str], created: float
) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=list(labels))
    if histogram is not None:
        family.add_metric(list(labels.values()), histogram.buckets(), histogram.sum)
        family.add_sample(f"{name}_created", labels, created)
    return family
