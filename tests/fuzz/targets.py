"""What is fuzzed: each takes any bytes and asserts that they give a result, or the one named error with a readable message."""

import asyncio
import contextlib
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import bcrypt
from prometheus_client.parser import text_string_to_metric_families

from prefixwatch.addresses import host_and_port, url_of
from prefixwatch.config import load, read_targets, shown
from prefixwatch.eventdecoder import EventDecoder, MalformedError
from prefixwatch.eventtrace import recorded_events
from prefixwatch.figures.events import EventTally
from prefixwatch.listener.configuration import WebConfig
from prefixwatch.listener.credentials import Doorkeeper, Verdict
from prefixwatch.listener.webfile import Terms
from prefixwatch.page.dialects import is_wanted
from prefixwatch.page.exposition import Page, PageReader
from prefixwatch.page.interpreter import Interpreter
from prefixwatch.page.lines import PageError
from prefixwatch.replaying import replay
from prefixwatch.settings import ConfigError
from prefixwatch.snapshot import encoded
from prefixwatch.targetwatch import Refused, TargetWatch
from prefixwatch.trace import TraceError, scrapes

LONGEST_MESSAGE = 400
_TOKEN = "open-sesame-7f3a"
_HASH = bcrypt.hashpw(b"a password that is in no example", bcrypt.gensalt(4)).decode()
_TERMS = Terms(config=WebConfig(basic_auth_users={"alice": _HASH}), token=_TOKEN)
_FOLDER = Path(tempfile.gettempdir())


def readable(error: Exception, *names: object) -> None:
    """Assert that a message is one line that can be printed, and not for ever; `names` of files do not count."""
    text = str(error)
    for name in names:
        text = text.replace(str(name), "")
    assert text
    assert text.isprintable(), text
    assert len(text) <= LONGEST_MESSAGE, text


def page(content: bytes) -> None:
    """A page: read twice alike, interpreted, watched, and exported as JSON."""
    reader = PageReader(is_wanted)
    first = _read(reader, content)
    assert _comparable(_read(reader, content)) == _comparable(first), "a remembered page reads as a new one"
    if isinstance(first, PageError):
        readable(first)
        return
    watch, interpreter = TargetWatch("target"), Interpreter()
    for time in (1000.0, 1005.0):
        reading = interpreter.interpret(first, time=time)
        for engine in reading.engines:
            assert all(math.isfinite(value) and value >= 0 for value in engine.counters.values())
            assert all(math.isfinite(value) for value in engine.gauges.values())
        with contextlib.suppress(Refused):
            watch.add(reading)
    encoded([watch.state().snapshot()]).decode()


def page_beside_another_reader(content: bytes) -> None:
    """A page that prometheus_client's parser takes as well: the same samples."""
    compared_samples(content)


def compared_samples(content: bytes) -> int:
    """Return of how many samples two readers said the same, 0 where one of them refuses the page."""
    try:
        # Its names of samples depend on the declarations; ours are what is written.
        text = "\n".join(line for line in content.decode().split("\n") if not line.lstrip().startswith("#"))
        theirs = [
            (sample.name, tuple(sorted(sample.labels.items())), float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if is_wanted(sample.name)
        ]
    except Exception:  # noqa: BLE001  theirs raises what it likes
        return 0
    ours = _read(PageReader(is_wanted), content)
    if isinstance(ours, PageError) or ours.is_cut:
        return 0
    found = [(one.name, one.labels, value) for one, value in zip(ours.series, ours.values, strict=True)]
    assert {*map(repr, found)} == {*map(repr, theirs)}
    return len(found)


def authorization(content: bytes) -> None:
    """An Authorization header, as aiohttp gives its bytes: nobody is let in who does not know the token."""
    text = content.decode("utf-8", "surrogateescape")

    async def judged() -> Verdict:
        keeper = Doorkeeper()
        try:
            return await keeper.judge(text, _TERMS)
        finally:
            keeper.close()

    scheme, _, given = text.strip().partition(" ")
    is_right = scheme.lower() == "bearer" and given.strip() == _TOKEN
    assert asyncio.run(judged()) is (Verdict.ADMITTED if is_right else Verdict.REFUSED)


def events(content: bytes) -> None:
    """A message of cache events."""
    try:
        batch = EventDecoder(b"key").decode(content)
    except MalformedError as error:
        readable(error)
        return
    tally = EventTally(1000)
    for event in batch.events:
        tally.observe(event)
    assert all(amount >= 0 for amount in tally.settle().values())


def configuration(content: bytes) -> None:
    """A configuration file; what is shown of one that is taken is taken again, and shown alike."""
    with _file(content) as file:
        try:
            config = load(file, {}, {}, needs_target=False)
        except ConfigError as error:
            readable(error, file)
            return
        text = shown(config)
        if "<hidden>" not in text:
            file.write_text(text)
            assert shown(load(file, {}, {}, needs_target=False)) == text


def targets_file(content: bytes) -> None:
    """A file of targets."""
    with _file(content) as file:
        try:
            found = read_targets(file)
        except ConfigError as error:
            readable(error, file)
            return
        for target in found:
            url(bytes(target.url or target.dns or "", "utf-8", "surrogatepass"))


def trace(content: bytes) -> None:
    """A recorded trace: read, and replayed."""
    with _file(content) as file:
        try:
            for scrape in scrapes(file):
                assert math.isfinite(scrape.time)
            encoded([replay(file).watch.state().snapshot()]).decode()
        except TraceError as error:
            readable(error, file)


def events_trace(content: bytes) -> None:
    """Recorded cache events."""
    with _file(content) as file:
        tally = EventTally(1000)
        try:
            for _, event in recorded_events(file):
                tally.observe(event)
        except TraceError as error:
            readable(error, file)
        assert all(amount >= 0 for amount in tally.settle().values())


def url(content: bytes) -> None:
    """A URL as people write it: completed once and for all, and without credentials."""
    text = content.decode("utf-8", "replace")
    try:
        whole = url_of(text)
    except ValueError as error:
        readable(error)
        return
    assert url_of(whole) == whole
    assert "@" not in host_and_port(whole)
    assert whole.isprintable()
    host, _, port = host_and_port(whole).rpartition(":")
    assert host
    assert 0 < int(port) <= 65535


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (
        page, page_beside_another_reader, authorization, events, configuration, targets_file, trace, events_trace, url
    )
}  # fmt: skip


def _read(reader: PageReader, content: bytes) -> Page | PageError:
    try:
        return reader.read(content)
    except PageError as error:
        return error


def _comparable(result: Page | PageError) -> object:
    if isinstance(result, PageError):
        return str(result)
    samples = [(one.name, one.labels, repr(value)) for one, value in zip(result.series, result.values, strict=True)]
    return samples, result.helps, result.types, result.other_names, result.is_cut


@contextlib.contextmanager
def _file(content: bytes):
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        file = Path(folder) / "file"
        file.write_bytes(content)
        yield file
