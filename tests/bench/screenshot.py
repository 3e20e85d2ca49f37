"""Take the README's picture of the page anew, from a recorded trace.

python tests/bench/screenshot.py [TRACE] [--to FILE] [--width PIXELS] [--height PIXELS] [--scheme light|dark]

TRACE names a folder of tests/data/traces (default thrash_low_usage). The windows are shorter than
the default ones, as a trace lasts a minute.
"""

import argparse
import base64
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from chromium import Browser, browser  # noqa: E402
from prefixwatch.config import Config, Duration  # noqa: E402
from replayed import TRACES, ReplayedPoller, serving, watched  # noqa: E402

CONFIG = Config(
    windows=(Duration(15), Duration(30), Duration(60)), diagnosis_window=Duration(60), poll_interval=Duration(1)
)


# The browser knows how to decode a PNG: hand it one, get red, green, blue, alpha of each pixel.
_PIXELS = """
    const [png, done] = arguments;
    fetch("data:image/png;base64," + png).then(r => r.blob()).then(createImageBitmap).then(image => {
        const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
        context.drawImage(image, 0, 0);
        const reader = new FileReader();
        reader.onload = () => done([image.width, reader.result.split(",")[1]]);
        reader.readAsDataURL(new Blob([context.getImageData(0, 0, image.width, image.height).data]));
    });
"""


def main() -> None:
    """Serve the trace, and photograph the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "trace", nargs="?", default="thrash_low_usage", choices=sorted(p.name for p in TRACES.iterdir())
    )
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "overview.png")
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int, help="at most so much of the page")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    wanted = parser.parse_args()
    poller = ReplayedPoller([watched(wanted.trace)], spans=CONFIG.windows)
    with serving(CONFIG, poller) as url, browser() as tab:
        tab.open(url, width=wanted.width, height=600, scheme=wanted.scheme)
        picture = with_palette(tab, tab.screenshot(height=wanted.height))
    wanted.to.parent.mkdir(exist_ok=True)
    wanted.to.write_bytes(picture)
    print(f"{wanted.to}: {len(picture) / 1000:.0f} kB")


def with_palette(tab: Browser, png: bytes) -> bytes:
    """Return a picture of at most 256 colours, a third of the size: of colours alike the most common stays."""
    tab.open("about:blank")
    width, encoded = tab.run_async(_PIXELS, base64.b64encode(png).decode())
    pixels = np.frombuffer(base64.b64decode(encoded), np.uint8).reshape(-1, 4)[:, :3]
    colours, which, counts = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    common_first = np.argsort(-counts, kind="stable")
    _, first_of_alike = np.unique(colours[common_first] >> 3, axis=0, return_index=True)
    palette = colours[common_first[np.sort(first_of_alike)[:256]]]
    distance = ((colours[:, None].astype(int) - palette[None]) ** 2).sum(axis=2)
    rows = distance.argmin(axis=1).astype(np.uint8)[which.ravel()].reshape(-1, width)
    unfiltered = np.pad(rows, ((0, 0), (1, 0))).tobytes()
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(unfiltered, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


if __name__ == "__main__":
    main()
