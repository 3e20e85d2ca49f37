"""Four times the input takes about four times as long, whatever the input is: nothing grows with the square."""

import time
from collections.abc import Callable

import msgspec
import pytest

from fuzz.targets import TARGETS

LINEAR, SQUARE = 4, 16
LIMIT = (LINEAR + SQUARE) / 2
NOTHING = 0.002
"""Seconds, below which a time says nothing."""

Q = b"vllm:prefix_cache_queries_total"
STORED = {"type": "BlockStored", "parent_block_hash": None, "block_size": 1}

HARD = [
    ("page", 20_000, lambda n: b"".join(b'%b{engine="%d",model_name="m"} 1\n' % (Q, i) for i in range(n // 10))),
    ("page", 20_000, lambda n: b"".join(b'other_total{a="%d"} 1\n' % i for i in range(n))),
    ("page", 20_000, lambda n: b"".join(b"%b 1\n" % Q for _ in range(n))),
    ("page", 20_000, lambda n: b"".join(b"%b %d\n" % (Q, i) for i in range(n))),
    ("page", 400_000, lambda n: b'%b{a="%b"} 1\n' % (Q, b'\\"' * (n // 2))),
    ("page", 400_000, lambda n: b"%b{%b} 1\n" % (Q, b'"' * n)),
    ("page", 400_000, lambda n: b"%b%b 1\n" % (Q, b"{" * n)),
    ("page", 100_000, lambda n: b"%b{%b} 1\n" % (Q, b"".join(b'a%d="1",' % i for i in range(n)))),
    ("page", 400_000, lambda n: b"%b%b1%b1 x\n" % (Q, b" " * n, b" " * n)),
    ("page", 400_000, lambda n: b"%b 1 # {%b\n" % (Q, b" " * n)),
    ("page", 400_000, lambda n: b"# HELP %b%b\n" % (Q, b" " * n)),
    ("page", 400_000, lambda n: b"a" * n),
    ("page", 280_000, lambda n: b"\n" * n),
    ("page", 200_000, lambda n: b"# EOF\n" * n),
    ("page", 400_000, lambda n: b"%b %b\n" % (Q, b"1" * n)),
    ("events", 100_000, lambda n: _batch(block_hashes=[*range(n)], token_ids=[*range(n)])),
    ("events", 100_000, lambda n: _batch(block_hashes=[1] * n, token_ids=[*range(n)], extra_keys=[["a"]] * n)),
    ("events", 100_000, lambda n: msgspec.msgpack.encode([1.0, [["BlockRemoved", [i]] for i in range(n)], 0])),
    ("events", 200_000, lambda n: b"\x91" * n),
    ("trace", 20_000, lambda n: b"".join(b"# SCRAPE %d\n%b 1\n" % (1000 + i, Q) for i in range(n // 50))),
    ("trace", 400_000, lambda n: b"# SCRAPE 1\n" + b"# SCRAPE " * (n // 9)),
    ("trace", 400_000, lambda n: b"# SCRAPE 1 error %b\n" % (b" x" * (n // 2))),
    ("events_trace", 20_000, lambda n: b'{"t":1,"stored":[%b]}\n' % b",".join(b'"%x"' % i for i in range(n))),
    ("url", 200_000, lambda n: b"http://" + b"a" * n),
    ("url", 200_000, lambda n: b"http://" + b"[" * n),
    ("url", 200_000, lambda n: b"@:" * (n // 2)),
    ("url", 200_000, lambda n: b"a://" * (n // 4)),
    ("targets_file", 40_000, lambda n: b"".join(b"- url: a%d\n" % i for i in range(n // 100))),
    ("targets_file", 4_000, lambda n: b"[" * n),
    ("targets_file", 40_000, lambda n: b"- &a [" + b"*a," * (n // 3) + b"]"),
    ("targets_file", 40_000, lambda n: b"- url: '" + b"@:" * (n // 2) + b"'"),
    ("configuration", 40_000, lambda n: b"x: " + b"1:" * (n // 2)),
    ("configuration", 40_000, lambda n: b"!" * n),
]  # fmt: skip


def _batch(**fields: object) -> bytes:
    return msgspec.msgpack.encode([1.0, [{**STORED, **fields}], 0])


@pytest.mark.parametrize("number", range(len(HARD)))
def test_it_grows_like_its_input(number: int) -> None:
    name, size, made = HARD[number]
    small = _seconds(TARGETS[name], made(size // LINEAR))
    large = _seconds(TARGETS[name], made(size))
    assert large < max(LIMIT * small, LIMIT * NOTHING), f"{small:.4f} s, and {large:.4f} s for four times as much"


def _seconds(target: Callable[[bytes], None], content: bytes) -> float:
    def once() -> float:
        before = time.thread_time()
        target(content)
        return time.thread_time() - before

    return min(once() for _ in range(2))
