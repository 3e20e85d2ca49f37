"""The table of faults: what each does, and what the exporter has to say of it."""

from dataclasses import dataclass

from edge import engines
from edge.engines import HTML, JSON, SGLANG, Answer
from faults import answers

Q = "vllm:prefix_cache_queries_total"
OLD, FUTURE = 1_700_000_000.0, 4_000_000_000.0


def _sets(line: str, count: int) -> Answer:
    return answers.with_more("".join(f"{line % number} 1\n" for number in range(count)).encode())


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`reason`: of `poll_errors_total`, None where nothing is wrong; `words`: in the error that people read.

    `passes`: whether figures are right again at once when it is over. `is_heavy`: it keeps the exporter busy.
    """

    name: str
    answer: Answer | None
    reason: str | None
    words: str = ""
    passes: bool = True
    is_heavy: bool = False


FAULTS = (
    Fault(name="killed", answer=None, reason="connection", words="no connection: Connect"),
    Fault(name="hangs", answer=engines.hang, reason="timeout", words="no whole answer within 2 s"),
    Fault(name="a byte a second", answer=answers.slow, reason="timeout", words="no whole answer within 2 s"),
    Fault(name="500", answer=engines.status(500), reason="http_5xx", words="HTTP 500"),
    Fault(name="HTML", answer=engines.body(HTML), reason="not_metrics", words="this is HTML"),
    Fault(name="JSON", answer=engines.body(JSON), reason="not_metrics", words="this is JSON"),
    Fault(name="gzip bomb", answer=answers.bomb(is_declared=True), reason="not_metrics", words="compressed"),
    Fault(name="gzip bomb undeclared", answer=answers.bomb(is_declared=False), reason="not_metrics", words="gzip"),
    Fault(name="100 MB", answer=answers.huge(chunked=False), is_heavy=True, reason="too_large", words="larger than 16777216 bytes"),
    Fault(name="100 MB in chunks", answer=answers.huge(chunked=True), is_heavy=True, reason="too_large", words="max_page_bytes"),
    Fault(name="half of its length", answer=engines.cut_off, reason="cut_off", words="broke off in the middle"),
    Fault(name="cut in a line", answer=answers.cut(at_line_end=False), reason="cut_off", words="the end of its last line is missing"),
    Fault(
        name="OpenMetrics without its end", reason="cut_off", words="# EOF is missing",
        answer=engines.body(SGLANG, **{"Content-Type": "application/openmetrics-text"}),
    ),
    Fault(name="cut between lines", answer=answers.cut(at_line_end=True), reason="incomplete", words="was it cut off?"),
    Fault(name="a page of SGLang", answer=engines.body(SGLANG), reason="incomplete", words="looks like SGLang"),
    Fault(
        name="another model", answer=answers.of_another_process(OLD, model_name="other"), reason=None, passes=False
    ),
    Fault(name="another process", answer=answers.of_another_process(OLD), reason=None, passes=False),
    Fault(
        name="two in turn", answer=answers.in_turn(OLD), passes=False,
        reason="several_engines", words="several engines answer on this address in turn",
    ),
    Fault(name="times of the future", answer=answers.of_another_process(FUTURE), reason=None, passes=False),
    Fault(name="the host's clock set", answer=answers.started_later, reason=None),
    Fault(name="new models", answer=answers.changing_models(), reason="incomplete", words="lacks"),
    Fault(name="new label values", answer=answers.changing_sources(), reason="incomplete", words="lacks"),
    Fault(
        name="100,000 label sets", answer=_sets(Q + '{engine="0",model_name="m%d"}', 100_000),
        is_heavy=True, reason="broken_page", words="more than 50000: a label without bound?",
    ),
    Fault(
        name="300 engines", answer=_sets(Q + '{engine="e%d",model_name="m"}', 300),
        is_heavy=True, reason="too_many_engines", words="301 engines on one page, more than 256",
    ),
    Fault(
        name="2,000 sources", answer=_sets('vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="s%d"}', 2000),
        is_heavy=True, reason="too_many_counters", words="counters of one engine, more than 1000",
    ),
    Fault(
        name="8 MB of nothing", answer=engines.body(b"\n" * 2**23),
        is_heavy=True, reason="broken_page", words="8388608 lines, more than 300000",
    ),
    Fault(name="100,000 of others", answer=_sets('http_requests_total{path="/%d"}', 100_000), is_heavy=True, reason=None),
)  # fmt: skip
