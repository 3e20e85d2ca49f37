"""Recorded traces: what was recorded is replayed, and a broken one is one named error."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixwatch.replaying import replay
from prefixwatch.trace import Recorder, Scrape, TraceError, scrapes
from writing import page

PAIR = ("prefix_cache_queries_total", "prefix_cache_hits_total")


def text_of(queries: float, hits: float) -> str:
    return page(dict(zip(PAIR, (queries, hits), strict=True)))


FIRST, SECOND, THIRD = text_of(100, 25), text_of(120, 60), text_of(200, 95)
TRACE = f"# SCRAPE 1000\n{FIRST}# SCRAPE 1005.25\n{SECOND}# SCRAPE 1010 error timeout\n# SCRAPE 1015\n{THIRD}"


def written(folder: Path, content: str | bytes, name: str = "trace.txt") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def found(path: Path) -> list[tuple[float, str | None, str | None, int]]:
    return [
        (one.time, one.body.decode() if one.body is not None else None, one.error, one.line) for one in scrapes(path)
    ]


EXPECTED = [(1000, FIRST, None, 2), (1005.25, SECOND, None, 5), (1010, None, "timeout", 8), (1015, THIRD, None, 9)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("trace.txt", TRACE.encode(), id="plain"),
        pytest.param("trace.gz", gzip.compress(TRACE.encode()), id="gzipped"),
        pytest.param("trace.txt", gzip.compress(TRACE.encode()), id="gzipped, and not called so"),
        pytest.param(
            "trace.gz", gzip.compress(TRACE[:70].encode()) + gzip.compress(TRACE[70:].encode()), id="in two parts"
        ),
    ],
)
def test_a_trace_is_a_row_of_scrapes(tmp_path, name, content):
    assert found(written(tmp_path, content, name)) == EXPECTED


@pytest.mark.parametrize("name", ["scrapes.txt", "scrapes.txt.gz"])
def test_a_folder_holds_one(tmp_path, name):
    written(tmp_path, gzip.compress(TRACE.encode()) if name.endswith("gz") else TRACE, name)
    assert found(tmp_path) == EXPECTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("# SCRAPE 1\n", [(1, "", None, 2)], id="an empty page"),
        pytest.param("\n \n# SCRAPE 1\nx 1\n", [(1, "x 1\n", None, 4)], id="blank lines before"),
        pytest.param("# SCRAPE 1\r\nx 1\r\n", [(1, "x 1\r\n", None, 2)], id="CRLF"),
        pytest.param("# SCRAPE 1\nx 1", [(1, "x 1", None, 2)], id="the last page is cut"),
        pytest.param(
            "# SCRAPE 1\nx 1# SCRAPE 2\ny 1\n", [(1, "x 1", None, 2), (2, "y 1\n", None, 3)], id="a glued mark"
        ),
        pytest.param("# SCRAPE 1\nx 1\n# SCRAPE 17959", [(1, "x 1\n", None, 2)], id="cut in the last mark"),
        pytest.param("# SCRAPE 1\nx 1\n# SCR", [(1, "x 1\n# SCR", None, 2)], id="cut in the word"),
        pytest.param(
            "# SCRAPE 1\nx 1\n# SCRAPE 2 error conn", [(1, "x 1\n", None, 2), (2, None, "conn", 4)], id="in an error"
        ),
        pytest.param("# SCRAPE 1 error\n", [(1, None, "unknown", 2)], id="an error of no kind"),
        pytest.param("# SCRAPE 1 error HTTP 500\nlost\n", [(1, None, "HTTP 500", 2)], id="an error of two words"),
        pytest.param(
            "# SCRAPE 5\nx 1\n# SCRAPE 4\nx 2\n", [(5, "x 1\n", None, 2), (4, "x 2\n", None, 4)], id="time goes back"
        ),
    ],
)
def test_the_forms_of_a_trace(tmp_path, text, expected):
    assert found(written(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param("", 'line 1: no "# SCRAPE <unix seconds>" line: not a trace', id="empty"),
        pytest.param("\n\n", 'line 1: no "# SCRAPE <unix seconds>" line: not a trace', id="blank"),
        pytest.param("\nvllm:x 1\n", 'line 2: not a trace: it must start with "# SCRAPE <unix seconds>"', id="a page"),
        pytest.param("# SCRAPE soon\n", 'line 1: not a trace: it must start with "# SCRAPE <unix seconds>"', id="no time"),
        pytest.param("# SCRAPE " + "9" * 400 + "\n", 'line 1: not a trace: it must start with "# SCRAPE <unix seconds>"',
                     id="an endless time"),
        pytest.param("# SCRAPE 1\nx 1\n# SCRAPE 2x\n", "line 3: not a time, or something behind it: # SCRAPE 2x", id="a later one"),
        pytest.param("# SCRAPE 1\n# SCRAPE -5\n", "line 2: not a time, or something behind it: # SCRAPE -5", id="below zero"),
        pytest.param("# SCRAPE 1\n# SCRAPE nan\n", "line 2: not a time, or something behind it: # SCRAPE nan", id="NaN"),
        pytest.param(gzip.compress(TRACE.encode() * 50)[:-20], "the compressed file is broken or ends early", id="gzip, cut"),
        pytest.param(b"\x1f\x8b\x08 no gzip", "the compressed file is broken or ends early", id="gzip, broken"),
        pytest.param(b"\x1f\x8b", "line 1: the compressed file is broken or ends early", id="gzip, two bytes"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_one_named_error(tmp_path, content, fault):
    file = written(tmp_path, content)
    with pytest.raises(TraceError) as caught:
        list(scrapes(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_gzip_says_how_to_save_the_rest(tmp_path):
    body = "".join(f"# SCRAPE {1000 + n}\n{text_of(n, n / 2)}" for n in range(2000))
    file = written(tmp_path, gzip.compress(body.encode())[:-30], "trace.gz")
    with pytest.raises(TraceError, match=r"line [1-9]\d+: .*`gzip -dc .* > whole.txt` saves what is readable"):
        replay(file)


@pytest.mark.parametrize("name", ["missing.txt", "folder"])
def test_a_path_that_holds_no_trace_is_named(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        TraceError, match=r"no scrapes\.txt\.gz or scrapes\.txt in this folder|No such file or directory"
    ):
        list(scrapes(tmp_path / name))


class TestRecorder:
    @pytest.mark.parametrize("name", ["trace.txt", "trace.txt.gz"])
    def test_what_was_recorded_is_replayed(self, tmp_path, name):
        recorder = Recorder(tmp_path / name)
        recorder.page(1000.0, FIRST.encode())
        recorder.error(1005.5, "timeout")
        recorder.page(1010.0, b"")
        recorder.page(1015.0, SECOND.encode())
        recorder.close()
        recorder.close()
        assert [(one.time, one.body, one.error) for one in scrapes(tmp_path / name)] == [
            (1000, FIRST.encode(), None), (1005.5, None, "timeout"), (1010, b"", None), (1015, SECOND.encode(), None),
        ]  # fmt: skip

    @pytest.mark.parametrize("name", ["trace.txt", "trace.txt.gz"])
    def test_a_page_that_was_cut_off_stays_so(self, tmp_path, name):
        """Its last value may be half a number: a line end would make it a whole one."""
        cut = SECOND[:-2]
        recorder = Recorder(tmp_path / name)
        for time, body in ((1000.0, FIRST), (1005.0, cut), (1010.0, THIRD), (1015.0, cut)):
            recorder.page(time, body.encode())
        recorder.close()
        assert [one.body for one in scrapes(tmp_path / name)] == [text.encode() for text in (FIRST, cut, THIRD, cut)]
        done = replay(tmp_path / name)
        assert (done.used, done.unused, done.is_up) == (2, 2, False)

    def test_each_scrape_can_be_read_before_the_recording_ends(self, tmp_path):
        file = tmp_path / "trace.txt"
        recorder = Recorder(file)
        recorder.page(1000.0, FIRST.encode())
        assert found(file) == [(1000, FIRST, None, 2)]
        recorder.close()

    def test_a_file_that_is_there_is_not_overwritten(self, tmp_path):
        file = written(tmp_path, "mine")
        with pytest.raises(TraceError, match="exists already; name another file or remove it"):
            Recorder(file)
        assert file.read_text() == "mine"

    def test_a_file_that_cannot_be_written_is_named(self, tmp_path):
        with pytest.raises(TraceError, match="cannot be written: No such file or directory"):
            Recorder(tmp_path / "missing" / "trace.txt")


class TestReplay:
    def test_a_window_goes_from_the_first_to_the_last_page_that_can_be_used(self, tmp_path):
        done = replay(written(tmp_path, f"# SCRAPE 1000\n{FIRST}# SCRAPE 1005\n{SECOND[:40]}# SCRAPE 1010\n{THIRD}"))
        assert (done.used, done.unused, done.is_up) == (2, 1, True)
        assert done.first_fault == "line 5: the page ends in the middle"
        window = done.watch.state((None,)).engines[0].past.window()
        assert (window.increases["queried_tokens"], window.increases["hit_tokens"]) == (100, 70)

    def test_a_broken_page_is_named_by_its_line_in_the_file(self, tmp_path):
        broken = SECOND.replace("60", "sixty")
        done = replay(written(tmp_path, f"# SCRAPE 1000\n{FIRST}# SCRAPE 1005\n{broken}# SCRAPE 1010\n{THIRD}"))
        assert done.first_fault.startswith('line 6: "sixty" is not a number: vllm:prefix_cache_hits_total')
        assert (done.used, done.unused) == (2, 1)

    def test_a_page_out_of_order_moves_nothing(self, tmp_path):
        done = replay(written(tmp_path, f"# SCRAPE 1000\n{FIRST}# SCRAPE 990\n{SECOND}# SCRAPE 1010\n{THIRD}"))
        assert (done.used, done.unused) == (2, 1)
        assert done.first_fault == "line 5: time went from 1000.000 to 990.000"

    @pytest.mark.parametrize(
        ("until", "used"),
        [(None, 4), (0.0, 1), (5.0, 2), (12.0, 3), (1010.0, 3), (1000.0, 1), (1015.0, 4), (1020.0, 4)],
    )
    def test_a_moment_is_from_the_start_or_absolute(self, tmp_path, until, used):
        text = "".join(f"# SCRAPE {1000 + 5 * n}\n{text_of(100 * n, 10 * n)}" for n in range(4))
        assert replay(written(tmp_path, text), until=until).used == used

    @pytest.mark.parametrize("until", [30.0, 2000.0])
    def test_a_moment_after_the_trace_is_said_to_be_so(self, tmp_path, until):
        text = "".join(f"# SCRAPE {1000 + 5 * n}\n{text_of(100 * n, 10 * n)}" for n in range(4))
        with pytest.raises(TraceError, match=r"the trace ends at 1015\.000, 15 s from its start, before the moment"):
            replay(written(tmp_path, text), until=until)

    def test_a_moment_before_the_trace_is_said_to_be_so(self, tmp_path):
        file = written(tmp_path, f"# SCRAPE 1790000000\n{FIRST}")
        with pytest.raises(
            TraceError, match=r"line 1: the trace begins at 1790000000\.000, after the moment asked for"
        ):
            replay(file, until=1.7e9)

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            pytest.param(
                "# SCRAPE 1 error timeout\n", "line 1: no scrape of this trace gave a page", id="errors alone"
            ),
            pytest.param("# SCRAPE 1\n<html>\n", "line 2: this is HTML or XML, not a page of metrics", id="HTML"),
            pytest.param("# SCRAPE 1\nx 1", "line 2: the page ends in the middle", id="cut"),
        ],
    )
    def test_a_trace_without_one_page_is_an_error(self, tmp_path, text, fault):
        file = written(tmp_path, text)
        with pytest.raises(TraceError) as caught:
            replay(file)
        assert str(caught.value) == f"{file}: {fault}"


MARKS = st.sampled_from(
    [b"# SCRAPE 1\n", b"# SCRAPE 2 error x\n", b"# SCRAPE ", b"3", b"\n", b"vllm:x 1\n", FIRST.encode()]
)
CONTENT = st.binary(max_size=200) | st.lists(MARKS | st.binary(max_size=8), max_size=12).map(b"".join)


@given(CONTENT, st.booleans(), st.integers(0, 400))
def test_any_bytes_give_scrapes_or_one_named_error(tmp_path_factory, content, is_gzipped, end):
    file = tmp_path_factory.getbasetemp() / "any-trace"
    file.write_bytes(gzip.compress(content, mtime=0)[:end] if is_gzipped else content)
    for read in (lambda: list(scrapes(file)), lambda: replay(file)):
        fault = f"{file}: "
        try:
            result = read()
        except TraceError as error:
            fault = str(error)
        else:
            assert result
            assert not isinstance(result, list) or all(isinstance(one, Scrape) for one in result)
        assert fault.startswith(f"{file}: ")
        assert "\n" not in fault


PAGES = st.lists(st.tuples(st.none() | st.binary(max_size=40).filter(lambda body: b"# SCRAPE" not in body)), max_size=6)


@given(PAGES)
def test_any_pages_are_replayed_as_they_were_recorded(tmp_path_factory, recorded):
    file = tmp_path_factory.getbasetemp() / "any-recording"
    file.unlink(missing_ok=True)
    recorder = Recorder(file)
    for time, (body,) in enumerate(recorded):
        recorder.error(time, "timeout") if body is None else recorder.page(time, body)
    recorder.close()
    if recorded:
        assert [one.body for one in scrapes(file)] == [body for (body,) in recorded]
