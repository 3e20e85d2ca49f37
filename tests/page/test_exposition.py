"""The reader of pages: what is on the page and nothing else, or one named error."""

import math
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from prefixwatch.page import exposition
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import Page, PageReader
from prefixwatch.page.lines import NotAPage, PageError
from prefixwatch.trace import scrapes

DATA = Path(__file__).parents[1] / "data"
PAGES = sorted((DATA / "pages").glob("*.prom"))
TRACES = sorted((DATA / "traces").iterdir())
Q = "vllm:prefix_cache_queries_total"
H = "vllm:prefix_cache_hits_total"

Samples = list[tuple[str, dict[str, str], float]]


def reader() -> PageReader:
    return PageReader(is_wanted)


def samples(page: Page) -> Samples:
    return [(one.name, dict(one.labels), value) for one, value in zip(page.series, page.values, strict=True)]


def comparable(page: Page) -> tuple[object, ...]:
    """A page as text, for NaN equals itself there."""
    return (
        repr(samples(page)), page.helps, page.types, page.other_names, page.is_cut,
    )  # fmt: skip


def read(text: str | bytes, **options: bool) -> Page:
    """Read a page thrice (learnt, looked up, by its layout): the three must be equal."""
    body = text if isinstance(text, bytes) else text.encode()
    one = reader()
    first, *again = (one.read(body, **options) for _ in range(3))
    assert [comparable(page) for page in again] == [comparable(first)] * 2
    return first


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        pytest.param(f"{Q} 5", {}, 5, id="no labels"),
        pytest.param(f"{Q}{{}} 5", {}, 5, id="empty labels"),
        pytest.param(f'{Q}{{engine="0",model_name="m"}} 5.0', {"engine": "0", "model_name": "m"}, 5, id="labels"),
        pytest.param(f'{Q}{{a="1",}} 5', {"a": "1"}, 5, id="comma after the last label"),
        pytest.param(f'{Q} {{ a = "1" , b="2" }} 5', {"a": "1", "b": "2"}, 5, id="spaces everywhere"),
        pytest.param(f'  {Q}{{a="1"}}   5', {"a": "1"}, 5, id="leading and several spaces"),
        pytest.param(f'{Q}{{a="1"}}\t5', {"a": "1"}, 5, id="tab before the value"),
        pytest.param(f'\t{Q}\t{{a="1"}}\t5\t17', {"a": "1"}, 5, id="tabs only"),
        pytest.param(f"{Q} 5  ", {}, 5, id="spaces at the end"),
        pytest.param(f"{Q} 5\t", {}, 5, id="tab at the end"),
        pytest.param(f"{Q} 5\r", {}, 5, id="CRLF"),
        pytest.param(f"{Q} 5 1790000000\r", {}, 5, id="timestamp and CRLF"),
        pytest.param(f'{Q}{{a="1"}} 5 1790000000000', {"a": "1"}, 5, id="timestamp in ms"),
        pytest.param(f'{Q}{{a="1"}} 5 -1.5e3', {"a": "1"}, 5, id="timestamp of OpenMetrics"),
        pytest.param(f'{Q}{{a="1"}} 5 # {{trace_id="7 8"}} 0.5 17.5', {"a": "1"}, 5, id="exemplar"),
        pytest.param(f'{Q}{{a="1"}} 5 17 # {{}} 0.5', {"a": "1"}, 5, id="timestamp and exemplar"),
        pytest.param(Q + r'{a="x\\y\"z\nw"} 5', {"a": 'x\\y"z\nw'}, 5, id="the three escapes"),
        pytest.param(Q + r'{a="\\n"} 5', {"a": r"\n"}, 5, id="an escaped backslash before n"),
        pytest.param(Q + r'{a="\q"} 5', {"a": r"\q"}, 5, id="no escape stays"),
        pytest.param(
            Q + '{a="x}y{z,b=\\"2\\" 7 # "} 5', {"a": 'x}y{z,b="2" 7 # '}, 5, id="braces and commas in a value"
        ),
        pytest.param(Q + '{a="größe 模型"} 5', {"a": "größe 模型"}, 5, id="not ASCII"),
        pytest.param('{"' + Q + '",a="1"} 5', {"a": "1"}, 5, id="name among the labels"),
        pytest.param(f"{Q} +1.5e+06", {}, 1.5e6, id="exponent"),
        pytest.param(f"{Q} .5", {}, 0.5, id="no digit before the point"),
        pytest.param(f"{Q} +Inf", {}, math.inf, id="+Inf"),
        pytest.param(f"{Q} -inf", {}, -math.inf, id="-inf"),
        pytest.param(f"{Q} -0", {}, 0, id="minus zero"),
    ],
)
def test_a_line_gives_its_sample(line, labels, value):
    assert samples(read(line + "\n")) == [(Q, labels, value)]


def test_nan_is_read_as_nan():
    page = read(f"{Q} NaN\n{H} nan\n")
    assert [math.isnan(value) for value in page.values] == [True, True]


def test_labels_stand_in_order_of_their_names_whatever_the_page_does():
    page = read(f'{Q}{{b="2",a="1"}} 5\n{Q}{{a="1",c="3"}} 6\n')
    assert [one.labels for one in page.series] == [(("a", "1"), ("b", "2")), (("a", "1"), ("c", "3"))]
    one = reader()
    assert one.read(b'%s{b="2",a="1"} 5\n' % Q.encode()).series == one.read(b'%s{a="1",b="2"} 5\n' % Q.encode()).series


@pytest.mark.parametrize(
    "name",
    [
        "vllm:iteration_tokens_total",  # a histogram that ends like a counter
        "vllm:iteration_tokens_total_bucket",
        "vllm:iteration_tokens_total_sum",
        "vllm:prefix_cache_queries_total_total",
        "vllm:prefix_cache_queries_totals",
        "vllm:prefix_cache_quer",
        "xvllm:prefix_cache_queries_total",
        "vllm::prefix_cache_queries_total",
        "VLLM:prefix_cache_queries_total",
        "vllm:mm_cache_queries_total",  # items, not tokens
        "vllm:request_prompt",
        "vllm:request_params_max_tokens_sum",
        "vllm:time_to_first_token_seconds_bucket",  # its sum and count are wanted alone
        "vllm:prompt_tokens_cached_by_source_total",
        "cpu_prefix_cache_hit_rate",
    ],
)
def test_only_whole_names_are_wanted(name):
    page = read(f'{name}{{le="1"}} 7\n{name} 8\n{Q} 5\n{H} 1\n')
    assert samples(page) == [(Q, {}, 5), (H, {}, 1)]


def test_a_counter_is_not_the_histogram_of_a_like_name():
    page = read("vllm:prompt_tokens 3\nvllm:prompt_tokens_total 4\nvllm:request_prompt_tokens_sum 5\n")
    assert [one.name for one in page.series] == [
        "vllm:prompt_tokens", "vllm:prompt_tokens_total", "vllm:request_prompt_tokens_sum",
    ]  # fmt: skip


def test_declarations_of_wanted_families_are_kept():
    page = read(
        f"# HELP {Q} Prefix cache queries, in blocks.\n# TYPE {Q} counter\n# HELP whatever\n# TYPE other gauge\n"
        f"# HELP {H}\n#TYPE {H} counter\n# a comment of its own\n#\n\n{Q} 1\n"
    )
    assert page.helps == {Q: "Prefix cache queries, in blocks.", H: ""}
    assert page.types == {Q: "counter", H: "counter"}
    assert samples(page) == [(Q, {}, 1)]


def test_a_histogram_needs_no_inf_bucket_and_no_declaration():
    page = read('vllm:request_prompt_tokens_bucket{le="1.0"} 1\nvllm:request_prompt_tokens_count 2\n')
    assert [value for _, _, value in samples(page)] == [1, 2]


@pytest.mark.parametrize(
    ("lines", "line", "fault"),
    [
        pytest.param([f"{Q} 1", f"{H} one"], 2, '"one" is not a number', id="no number"),
        pytest.param([f"{Q} 1_000"], 1, '"1_000" is not a number', id="underscore in a number"),
        pytest.param([f"{Q} \u0661\u0662"], 1, "is not a number", id="digits of another script"),
        pytest.param([f"{Q} 0x10"], 1, '"0x10" is not a number', id="hexadecimal"),
        pytest.param([f"{Q} --5"], 1, '"--5" is not a number', id="two signs"),
        pytest.param([f"{Q} 5,3"], 1, '"5,3" is not a number', id="a comma in a number"),
        pytest.param(["", "# x", f"{Q} "], 3, "no value", id="no value"),
        pytest.param([f"{Q}"], 1, "neither a comment nor a sample", id="name alone"),
        pytest.param([f'{Q}{{a="1"}}'], 1, "neither a comment nor a sample", id="labels alone"),
        pytest.param([f'{Q}{{a="1" 5'], 1, "neither a comment nor a sample", id="no closing brace"),
        pytest.param([f'{Q}{{a="1}} 5'], 1, "neither a comment nor a sample", id="no closing quote"),
        pytest.param([f"{Q}{{a=1}} 5"], 1, "broken labels", id="value without quotes"),
        pytest.param([f'{Q}{{a="1",,b="2"}} 5'], 1, "broken labels", id="two commas"),
        pytest.param([f'{Q}{{a="1",a="2"}} 5'], 1, "broken labels", id="a label twice"),
        pytest.param([f'{Q}{{1a="1"}} 5'], 1, "broken labels", id="no label name"),
        pytest.param([f'{Q}{{"x"}} 5'], 1, "broken labels", id="two names"),
        pytest.param([f"{Q} 5 6 7"], 1, "something behind it", id="too many words"),
        pytest.param([f"{Q} 5 soon"], 1, "something behind it", id="no timestamp"),
        pytest.param([f"{Q} 5{Q} 6"], 1, "is not a number", id="two lines glued"),
        pytest.param([f"{Q} 1", f"{H} 2 {Q} 3"], 2, "something behind it", id="two lines with a space"),
        pytest.param(["{} 5"], 1, "without a name", id="no name"),
        pytest.param(["!!!"], 1, "neither a comment nor a sample", id="noise"),
        pytest.param([f"{Q} 5", f"{Q} 6"], 2, f"{Q} stands twice", id="twice, different"),
        pytest.param([f"{Q} 5", "x 1", f"{H} 1", f"{Q} NaN"], 4, f"{Q} stands twice", id="twice, one NaN"),
        pytest.param([f"{Q} NaN", f"{Q} 5"], 2, f"{Q} stands twice", id="twice, NaN first"),
        pytest.param(
            [f'{Q}{{a="1",b="2"}} 5', f'{Q}{{b="2",a="1"}} 6'], 2, "stands twice", id="in another label order"
        ),
    ],
)
def test_a_broken_line_of_a_wanted_family_is_named(lines, line, fault):
    for _ in range(2):
        with pytest.raises(PageError) as caught:
            reader().read("\n".join([*lines, ""]).encode())
        assert caught.value.line == line
        assert fault in caught.value.fault
        assert str(caught.value).startswith(f"line {line}: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "broken",
    ["other one", 'other{a="1" 5', "other{a=1} 5", "other 1_0", 'other{a="\udcff"} 5', "other 1 2 3 4", "other {"],
)
def test_a_broken_line_of_another_family_is_passed_over(broken):
    body = f"{Q} 5\n{broken}\n{H} 1\n".encode("utf-8", "surrogateescape")
    assert samples(read(body)) == [(Q, {}, 5), (H, {}, 1)]


def test_a_bare_word_may_be_a_torn_line():
    with pytest.raises(PageError, match="line 2: neither a comment nor a sample: vllm:pref"):
        reader().read(f"{Q} 5\nvllm:pref\n".encode())


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        pytest.param(b"<!DOCTYPE html>\n<html>\n", "HTML or XML", id="HTML"),
        pytest.param(b"\n  <html><body>502</body></html>", "HTML or XML", id="HTML without a line end"),
        pytest.param(b'{"detail":"Not Found"}', "JSON", id="JSON"),
        pytest.param(b'{\n  "data": []\n}\n', "JSON", id="JSON over lines"),
        pytest.param(b"[{}]\n", "JSON", id="a JSON list"),
        pytest.param(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\n\x00", "gzip", id="gzip"),
        pytest.param(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff", "gzip", id="gzip without a line end"),
    ],
)
def test_another_format_is_said_to_be_so(body, fault):
    with pytest.raises(NotAPage, match=fault) as caught:
        reader().read(body)
    assert caught.value.line == len(body[: len(body) - len(body.lstrip())].split(b"\n"))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        pytest.param(b'%s{a="\xff"} 5\n' % Q.encode(), 1, id="in a label"),
        pytest.param(b"%s 5\nvllm:prefix\xff 5\n" % Q.encode(), 2, id="in a name"),
        pytest.param("vllm:x 1\n".encode("utf-16"), 1, id="UTF-16"),
    ],
)
def test_what_is_not_utf8_is_named(body, line):
    with pytest.raises(PageError, match="not UTF-8") as caught:
        reader().read(body)
    assert caught.value.line == line


def test_a_byte_order_mark_is_passed_over():
    assert samples(read(b"\xef\xbb\xbf%s 5\n" % Q.encode())) == [(Q, {}, 5)]


@pytest.mark.parametrize(
    ("body", "is_openmetrics", "is_cut", "values"),
    [
        pytest.param(f"{Q} 5\n", False, False, [5], id="classic"),
        pytest.param(f"{Q} 5\n{H} 12", False, True, [5], id="the last line has no end"),
        pytest.param(f"{Q} 5\n{H}", False, True, [5], id="the last line is half a name"),
        pytest.param(f"{Q} 5\n# HEL", False, True, [5], id="the last line is half a comment"),
        pytest.param(f"{Q} 5\n  ", False, False, [5], id="spaces behind the last line"),
        pytest.param(f"{Q} 12", False, True, [], id="one line without an end"),
        pytest.param("", False, False, [], id="empty"),
        pytest.param(f"{Q} 5\n# EOF\n", True, False, [5], id="OpenMetrics"),
        pytest.param(f"{Q} 5\n# EOF", True, False, [5], id="EOF without a line end"),
        pytest.param(f"{Q} 5\r\n# EOF\r\n\r\n", True, False, [5], id="EOF and blank lines"),
        pytest.param(f"{Q} 5\n", True, True, [5], id="OpenMetrics without EOF"),
        pytest.param(f"{Q} 5\n# EO", True, True, [5], id="half of EOF"),
        pytest.param(f"{Q} 5\n# EOF\n", False, False, [5], id="EOF on a classic page"),
        pytest.param(f"# HELP {Q} up to # EOF\n{Q} 5\n", False, False, [5], id="EOF in a text"),
    ],
)
def test_a_cut_page_is_known_by_its_end(body, is_openmetrics, is_cut, values):
    page = read(body, is_openmetrics=is_openmetrics)
    assert (page.is_cut, list(page.values)) == (is_cut, values)


@pytest.mark.parametrize("rest", [f"{Q} 5\n# EOF\n", f"{H} 1\n", f"{H} 1", "# x\n"])
def test_text_behind_eof_is_two_pages_glued_together(rest):
    with pytest.raises(PageError, match="line 3: text after # EOF"):
        reader().read(f"{Q} 5\n# EOF\n{rest}".encode())


def test_a_sample_that_stands_twice_alike_counts_once():
    page = read(f'{Q}{{a="1",b="2"}} 5\n{H} NaN\n{Q}{{b="2",a="1"}} 5.0\n{H} nan\n')
    assert [(name, labels) for name, labels, _ in samples(page)] == [(Q, {"a": "1", "b": "2"}), (H, {})]


def test_names_of_others_are_told_where_nothing_was_wanted():
    assert read("sglang:x 1\nsglang:x 2\nother{} 3\n").other_names == ("sglang:x", "other")
    assert read("process_start_time_seconds 7\nsglang:x 1\n").other_names == ("sglang:x",)
    assert read(f"{Q} 1\n{H} 2\nsglang:x 1\n").other_names == ()


class TestMemory:
    """What a reader remembers never changes what it reads, and is bounded."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param(f"# HELP {Q} in blocks", f"# HELP {Q} in tokens", id="last word of a HELP line"),
            pytest.param(f"# TYPE {Q} counter", f"# TYPE {Q} gauge", id="last word of a TYPE line"),
            pytest.param(f"# TYPE {Q} counter", f"# TYPE {Q} counters", id="a longer last word"),
            pytest.param(f"# HELP {Q}", f"# HELP {H}", id="a HELP line without text"),
            pytest.param(f"# HELP other\n{Q} 1", f"# HELP {Q} text\n{Q} 1", id="an unwanted HELP line first"),
            pytest.param(f'{Q}{{a="1"}} 5', f'{Q}{{a="1"}} 5 1790000000', id="timestamp after one without"),
            pytest.param(f'{Q}{{a="1"}} 5 1790000000', f'{Q}{{a="1"}} 5', id="no timestamp after one with"),
            pytest.param(f'{Q}{{a="1"}} 5 17', f'{Q}{{a="1"}} 6 18', id="both with timestamps"),
            pytest.param(f'{Q}{{a="x y"}} 5', f'{Q}{{a="x z"}} 6', id="space in a label value"),
            pytest.param(f'{Q}{{a="x y"}}\t5', f'{Q}{{a="x z"}}\t6', id="space in a label value, tab before the value"),
            pytest.param(f'  foo{{a="1"}}\t5\n{H} 1', f'  {Q}{{a="1"}}\t5\n{H} 1', id="indented and tabs"),
            pytest.param(f"foo 5\n{H} 1", f"{Q} 5\n{H} 1", id="another name"),
            pytest.param(f"{Q} 5", f"{Q} 5 # {{}} 1", id="exemplar after one without"),
            pytest.param(f"{Q} 5\n{H} 1\n{H} 1\nx 1", f"{Q} 5\n{H} 2\nx 1\nx 1", id="a repeat that ends"),
            pytest.param(f"{Q} 5\n{Q} 5\n{H} 7 17", f"{Q} 6\n{Q} 6\n{H} 8 17", id="a repeat beside a timestamp"),
            pytest.param(f"{Q} 5\n# EOF", f"{Q} 5\n# EOG", id="EOF and a comment"),
            pytest.param(f"{Q} 5\n\n{H} 1", f"{Q} 5\nx\n{H} 1", id="a blank line"),
            pytest.param(f"{Q} 5", f"{Q} 1_000", id="an underscore in a number that was one"),
            pytest.param(f"{Q} 5", f"{Q} x", id="no number where one was"),
        ],
    )  # fmt: skip
    def test_a_known_line_means_nothing_for_another(self, one, other):
        shared = reader()
        for body in (one, one, one, other, other, other, one, other):
            assert result(shared, f"{body}\n") == result(reader(), f"{body}\n")

    def test_one_reader_serves_pages_that_begin_alike(self):
        shared = reader()
        bodies = [
            f'# x\n{Q}{{model_name="{name}"}} {n}\n{H}{{model_name="{name}"}} 1\n' for n in (1, 2) for name in "ab"
        ]
        for body in bodies * 4:
            assert result(shared, body) == result(reader(), body)

    def test_what_is_remembered_is_bounded(self, monkeypatch):
        monkeypatch.setattr(exposition, "MAX_TEXTS", 50)
        shared = reader()
        for n in range(200):
            body = f'{Q}{{a="{n}"}} {n}\n{H}{{a="{n}"}} {n} 17\nother{{a="{n}"}} 1\n\n\n'
            for _ in range(3):
                assert list(shared.read(body.encode()).values) == [n, n]
            sizes = len(shared._known), len(shared._interned), sum(len(kept) for kept, _ in shared._layouts.values())
            assert max(sizes) <= 60

    def test_a_long_text_is_read_and_not_remembered(self):
        shared, name = reader(), "m" * 100_000
        for n in range(3):
            page = shared.read(f'{Q}{{model_name="{name}{n}"}} {n}\nother{{x="{name}{n}"}} 1\n'.encode())
            assert samples(page) == [(Q, {"model_name": f"{name}{n}"}, n)]
        assert sum(map(sys.getsizeof, shared._known)) < 10_000

    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(f'{Q}{{a="%s{"x" * 1000}"}} 1\n', id="texts"),
            pytest.param(f'{Q}{{a="%s{"x" * 5000}"}} 1\n', id="texts too long to remember"),
            pytest.param(f"# %s{'x' * 5000} comment\n", id="comments"),
        ],
    )
    def test_what_is_remembered_is_bounded_in_bytes(self, monkeypatch, line):
        monkeypatch.setattr(exposition, "MAX_BYTES", 100_000)
        one = reader()
        tracemalloc.start()
        try:
            for size in range(40, 80):  # each another number of lines: a layout of its own
                body = "".join(line % f"{size}-{n}" for n in range(size))
                one.read(body.encode())
                one.read(body.encode())
            assert tracemalloc.get_traced_memory()[0] < 3_000_000, "all of it are 10 MB"
        finally:
            tracemalloc.stop()

    def test_a_page_above_what_is_remembered_is_read_all_the_same(self, monkeypatch):
        monkeypatch.setattr(exposition, "MAX_TEXTS", 10)
        body = "".join(f'{Q}{{a="{n}"}} {n}\n' for n in range(30))
        assert list(read(body).values) == list(range(30))


def result(one: PageReader, body: str) -> object:
    try:
        return comparable(one.read(body.encode()))
    except PageError as error:
        return str(error)


def test_labels_without_bound_are_an_error():
    body = "".join(f'{Q}{{a="{n}"}} 1\n' for n in range(100_000)).encode()
    with pytest.raises(PageError, match="100000 samples of wanted families, more than 50000"):
        reader().read(body)


def test_lines_without_bound_are_an_error():
    with pytest.raises(PageError, match="8388608 lines, more than 300000"):
        reader().read(b"\n" * 2**23)


def test_a_hundred_thousand_label_sets_of_others_are_passed_over():
    body = "".join(f'http_requests_total{{path="/{n}"}} 1\n' for n in range(100_000)) + f"{Q} 5\n{H} 1\n"
    assert samples(read(body)) == [(Q, {}, 5), (H, {}, 1)]


def test_one_line_of_many_megabytes_is_read():
    name = 'm\\"}' * 1_000_000
    page = reader().read(f'{Q}{{a="{name}"}} 5\n{H}{{a="{name}\n'.encode()[: -len(name) - 20])
    assert page.values == (5,)
    with pytest.raises(PageError, match="line 1: neither"):
        reader().read(f'{H}{{a="{name}\n'.encode())


def expected_of(body: bytes) -> Samples:
    """What prometheus_client's parser says of the wanted samples."""
    return [
        (sample.name, dict(sample.labels), float(sample.value))
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if is_wanted(sample.name)
    ]


def normal(found: Samples) -> list[str]:
    # That parser adds `_total` to the samples of a family that is declared a counter.
    return sorted(repr((name.removesuffix("_total"), sorted(labels.items()), value)) for name, labels, value in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_reads_as_prometheus_client_reads_it(page):
    body = page.read_bytes()
    assert normal(samples(read(body))) == normal(expected_of(body))


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_a_recorded_page_reads_as_prometheus_client_reads_it(trace):
    bodies = [scrape.body for scrape in scrapes(trace) if scrape.body]
    shared = reader()
    for position, body in enumerate(bodies):
        page = shared.read(body)
        if position in (1, len(bodies) // 2, len(bodies) - 1):
            assert normal(samples(page)) == normal(expected_of(body))
            assert comparable(page) == comparable(reader().read(body))


LABEL_VALUES = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
LABELS = st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True), LABEL_VALUES, max_size=4)
NAMES = st.sampled_from(
    [Q, H, "vllm:kv_cache_usage_perc", "vllm:request_prompt_tokens_sum", "other", "vllm:other_total"]
)
NUMBERS = st.floats(allow_nan=False) | st.integers(0, 10**9).map(float)
BEHIND = st.sampled_from(["", "", "", " 1790000000", ' # {a="1"} 1', " ", "\t", "\r"])
FAMILIES = st.lists(
    st.tuples(NAMES, LABELS, NUMBERS, BEHIND), max_size=12, unique_by=lambda one: (one[0], tuple(sorted(one[1].items())))
)  # fmt: skip


def rendered(families: list[tuple[str, dict[str, str], float, str]]) -> str:
    lines = []
    for name, labels, value, behind in families:
        escaped = {
            label: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for label, text in labels.items()
        }
        inside = ",".join(f'{label}="{text}"' for label, text in escaped.items())
        lines.append(f"{name}{{{inside}}} {value!r}{behind}\n")
    return "".join(lines)


@given(FAMILIES, st.data())
def test_what_was_rendered_is_read_back(families, data):
    shared = reader()
    for _ in range(3):
        page = shared.read(rendered(families).encode())
        assert samples(page) == [one[:3] for one in families if is_wanted(one[0])]
        families = [(name, labels, data.draw(NUMBERS), behind) for name, labels, _, behind in families]


@given(st.binary(max_size=300) | st.text(alphabet='vllm:prefix_cache_hits_total{}="\\,# \t\r\n01.eNaEOF', max_size=300))
def test_any_bytes_give_a_page_or_one_named_error(content):
    body = content if isinstance(content, bytes) else content.encode()
    results = []
    shared = reader()
    for _ in range(3):
        try:
            results.append(comparable(shared.read(body)))
        except PageError as error:
            results.append(str(error))
    assert not isinstance(results[0], str) or "\n" not in results[0]
    assert results[0] == results[1] == results[2]


RECORDED = (DATA / "pages" / "recorded-0.32.prom").read_bytes().split(b"\n")
SHORT_PAGE = b"\n".join(line for line in RECORDED if b"_bucket" not in line)
SHARED = reader()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    body = bytearray(SHORT_PAGE)
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    lines = bytes(body).split(b"\n")
    for _ in range(draw(st.integers(0, 3))):
        del lines[draw(st.integers(0, len(lines) - 1))]
    whole = b"\n".join(lines)
    return whole[: draw(st.integers(0, len(whole)) | st.just(len(whole)))]


@given(damaged())
@settings(max_examples=150)
def test_a_damaged_page_never_gives_what_is_not_on_it(body):
    try:
        page = SHARED.read(body)
    except PageError:
        return
    lines = set(body.decode("utf-8", "replace").split("\n"))
    for series, value in zip(page.series, page.values, strict=True):
        assert any(series.name in line and stands_on(value, line) for line in lines)


def stands_on(value: float, line: str) -> bool:
    for word in line.split():
        try:
            number = float(word)
        except ValueError:
            continue
        if number == value or (math.isnan(number) and math.isnan(value)):
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_cut_anywhere_gives_only_whole_lines(page):
    body = page.read_bytes()
    whole = samples(reader().read(body))
    shared = reader()
    for end in range(0, len(body), max(1, len(body) // 200)):
        try:
            found = samples(shared.read(body[:end]))
        except NotAPage:
            continue
        assert repr(found) == repr(whole[: len(found)])
