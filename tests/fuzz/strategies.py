"""Bytes that look like the real thing, and then are damaged."""

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml
from hypothesis import strategies as st

DATA = Path(__file__).parents[1] / "data"
_PAGES = [file.read_bytes() for file in sorted((DATA / "pages").glob("*.prom"))]
_LINES = sorted({line + b"\n" for page in _PAGES for line in page.splitlines() if b"vllm" in line or b"_start" in line})

# Bytes.
_ODD_BYTES = st.sampled_from(
    [b"\n", b'"', b"\\", b"{", b"}", b",", b" ", b"\t", b"\r", b"#", b"\x00", b"\xff", b"_", b"\xc2\xa0"]
)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes and change up to three places: something goes, comes, or stands twice."""
    content = draw(whole)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        end = min(len(content), at + draw(st.integers(0, 12)))
        kind = draw(st.sampled_from(["cut", "drop", "insert", "again"]))
        match kind:
            case "cut":
                content = content[:at]
            case "drop":
                content = content[:at] + content[end:]
            case "insert":
                content = content[:at] + draw(st.one_of(_ODD_BYTES, st.binary(max_size=4))) + content[at:]
            case "again":
                content = content[:end] + content[at:]
    return content


# Pages.
_NAMES = st.sampled_from(
    [
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:prompt_tokens_by_source_total",
        "vllm:request_prompt_tokens_bucket", "vllm:request_prompt_tokens_sum", "vllm:request_prompt_tokens_count",
        "vllm:cache_config_info", "ray_vllm_kv_cache_usage_perc", "vllm:prefix_cache_queries_created",
        "process_start_time_seconds", "http_requests_total", "vllm:gpu_prefix_cache_hits_total",
    ]
)  # fmt: skip
_LABEL_NAMES = st.sampled_from(["engine", "model_name", "le", "source", "pid", "block_size", "ReplicaId", "a"])
_TEXTS = st.one_of(
    st.sampled_from(
        ["0", "1", "tiny", "+Inf", "0.5", "16", "None", "local_compute", 'a"b', "a\\b", "a\nb", "\u00e9", ""]
    ),
    st.text(max_size=6),
)
_VALUES = st.one_of(
    st.integers(-5, 10**19).map(str),
    st.floats().map(repr),
    st.sampled_from(
        [
            "NaN",
            "+Inf",
            "-Inf",
            "1e400",
            "1_000",
            "0x10",
            "\u0661",
            "1.",
            ".5",
            "+5",
            "1e5",
            "5 1700000000000",
            "5 # {} 1",
        ]
    ),
)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_lines(draw: st.DrawFn) -> bytes:
    labels = draw(st.dictionaries(_LABEL_NAMES, _TEXTS, max_size=4))
    inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    gap = draw(st.sampled_from([" ", "  ", "\t"]))
    line = f"{draw(_NAMES)}{f'{{{inside}}}' if inside or draw(st.booleans()) else ''}{gap}{draw(_VALUES)}\n"
    return line.encode("utf-8", "replace")


_DECLARATIONS = st.builds(
    lambda kind, name, text: f"# {kind} {name} {text}\n".encode("utf-8", "replace"),
    st.sampled_from(["HELP", "TYPE", "EOF", "UNIT"]), _NAMES,
    st.one_of(st.sampled_from(["counter", "gauge", "histogram", "in blocks", "of tokens"]), st.text(max_size=8)),
)  # fmt: skip
pages = damaged(
    st.lists(st.one_of(st.sampled_from(_LINES), sample_lines(), sample_lines(), _DECLARATIONS), max_size=12).map(
        b"".join
    )
)

# Events.
_HASHES = st.one_of(st.binary(max_size=40), st.integers(-(2**63), 2**64 - 1), st.none(), st.text(max_size=3))
_EVENTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("BlockStored"), "block_hashes": st.lists(_HASHES, max_size=4)},
        optional={
            "parent_block_hash": _HASHES,
            "token_ids": st.lists(st.integers(-1, 2**64 - 1), max_size=9),
            "block_size": st.one_of(st.integers(-1, 20), st.floats()),
            "lora_id": st.one_of(st.none(), st.integers(0, 5)),
            "medium": st.sampled_from([None, "GPU", "CPU", 5]),
            "extra_keys": st.recursive(
                st.one_of(st.none(), st.text(max_size=3), st.integers(0, 9)), st.lists, max_leaves=6
            ),
            "group_idx": st.one_of(st.none(), st.integers(-2, 2**63 - 1)),
        },
    ),
    st.fixed_dictionaries({"type": st.just("BlockRemoved"), "block_hashes": st.lists(_HASHES, max_size=4)}),
    st.just({"type": "AllBlocksCleared"}),
    st.lists(
        st.one_of(st.just("BlockStored"), st.just("BlockRemoved"), _HASHES, st.lists(_HASHES, max_size=3)), max_size=8
    ),
    st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=2),
)
_TIMES = st.one_of(st.floats(), st.integers(0, 2**40), st.none(), st.just("now"))
batches = damaged(
    st.builds(
        lambda time, found, rank: msgspec.msgpack.encode([time, found, rank]),
        _TIMES, st.lists(_EVENTS, max_size=4), st.one_of(st.none(), st.integers(-1, 9), st.text(max_size=2)),
    )
)  # fmt: skip
_HEX = st.one_of(st.binary(max_size=8).map(bytes.hex), st.text(max_size=4))
event_rows = st.fixed_dictionaries(
    {"t": st.one_of(st.floats(), st.integers(0, 2**70), st.text(max_size=2))},
    optional={
        "engine": st.one_of(st.none(), st.integers(-1, 2**70)),
        "group": st.integers(-1, 2**70),
        "stored": st.lists(_HEX, max_size=3),
        "parent": st.one_of(st.none(), _HEX),
        "tokens": st.lists(_HEX, max_size=3),
        "keys": st.lists(st.one_of(st.none(), _HEX), max_size=3),
        "removed": st.lists(_HEX, max_size=3),
        "cleared": st.booleans(),
    },
)


def _zipped(content: bytes, is_zipped: bool) -> bytes:
    return gzip.compress(content, compresslevel=1, mtime=0) if is_zipped else content


event_traces = damaged(
    st.builds(
        lambda rows, is_zipped: _zipped(b"".join(json.dumps(row).encode() + b"\n" for row in rows), is_zipped),
        st.lists(event_rows, max_size=5), st.booleans(),
    )
)  # fmt: skip

# Traces.
_MARKS = st.one_of(
    st.builds(lambda time: b"# SCRAPE %d.5\n" % time, st.integers(0, 10**12)),
    st.sampled_from([b"# SCRAPE 1000\n", b"# SCRAPE 1005 error timeout\n", b"# SCRAPE x\n", b"# SCRAPE \n"]),
)
traces = damaged(
    st.builds(
        lambda parts, is_zipped: _zipped(b"# SCRAPE 999\n" + b"".join(parts), is_zipped),
        st.lists(st.one_of(_MARKS, st.sampled_from(_LINES), sample_lines()), max_size=12), st.booleans(),
    )
)  # fmt: skip

# YAML.
_SCALARS: Sequence[object] = (
    "5s", "1m", "0s", "-1s", "1e9d", "", None, True, 0, -1, 2**70, 0.5, float("nan"), "http://a:1/metrics", "a:8000",
    "http://me:secret@a", "tcp://*:5557", ":9840", "[::]:1", ":99999", "info", "x" * 300, "a\nb", "\u202e",
)  # fmt: skip
_KEYS = (
    "targets", "targets_file", "listen", "poll_interval", "poll_timeout", "windows", "diagnosis_window", "thresholds",
    "max_page_bytes", "access", "events", "log_level", "stale_after_polls", "url", "dns", "name", "labels", "endpoints",
    "replay_endpoints", "topic", "remembered_blocks", "bearer_token_file", "cert_file", "key_file", "__meta", "le", "zone",
)  # fmt: skip
_TREES = st.recursive(
    st.sampled_from(_SCALARS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)),
    max_leaves=12,
)
_TARGET = st.dictionaries(
    st.sampled_from(("url", "dns", "name", "labels", "access", "events", "targets")), _TREES, max_size=3
)
_PARTS = st.sampled_from(
    [
        "&a",
        "*a",
        "!!int",
        "!!binary",
        "<<: ",
        "- ",
        "? ",
        "| \n",
        "[",
        "{",
        "\t",
        "%YAML 9\n",
        "---\n",
        "!!python/name:os",
    ]
)
_TEXT_OF_YAML = st.lists(
    st.one_of(_PARTS, st.sampled_from([f"{key}: " for key in _KEYS]), st.text(max_size=5)), max_size=8
)


def _dumped(tree: object) -> bytes:
    return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace")


configurations = damaged(
    st.one_of(
        st.dictionaries(st.sampled_from(_KEYS), _TREES, max_size=4).map(_dumped),
        _TEXT_OF_YAML.map(lambda parts: "".join(parts).encode("utf-8", "replace")),
    )
)
targets_files = damaged(
    st.one_of(
        st.lists(_TARGET, max_size=3).map(_dumped),
        _TEXT_OF_YAML.map(lambda parts: "".join(parts).encode("utf-8", "replace")),
    )
)

# URLs.
urls = st.lists(
    st.one_of(
        st.sampled_from(["http://", "https://", "ftp://", "//", "/", "@", ":", "[", "]", "::1", "a", "localhost", "8000", "?", "#", "%", "\\", ".", "metrics", "0", "99999", "\u0661"]),
        st.text(max_size=3),
    ),
    max_size=8,
).map(lambda parts: "".join(parts).encode("utf-8", "replace"))  # fmt: skip

# Headers.
_HEADERS = st.builds(
    lambda scheme, given: scheme + given,
    st.sampled_from([b"Bearer ", b"Basic ", b"basic  ", b"Bearer\t", b"Digest ", b"Basic", b""]),
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b"open-sesame", b"open-sesame-7f3a", b"\xff", b"\xc3\xa9"]),
        st.binary(max_size=12).map(base64.b64encode),
        st.binary(max_size=12).map(lambda password: base64.b64encode(b"alice:" + password)),
    ),
)
authorizations = st.one_of(_HEADERS, damaged(_HEADERS))

STRATEGIES: dict[str, st.SearchStrategy[bytes]] = {
    "page": pages,
    "page_beside_another_reader": pages,
    "authorization": authorizations,
    "events": batches,
    "configuration": configurations,
    "targets_file": targets_files,
    "trace": traces,
    "events_trace": event_traces,
    "url": urls,
}
