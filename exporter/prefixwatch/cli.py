"""The command line: `prefixwatch` or `python -m prefixwatch`."""

import argparse
import asyncio
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from prefixwatch import config, log, report, serving, snapshot
from prefixwatch.addresses import url_of
from prefixwatch.arguments import parser
from prefixwatch.comparison import compared
from prefixwatch.demo.command import demonstrate, stand_in
from prefixwatch.demo.errors import DemoError
from prefixwatch.eventstream import EventsError
from prefixwatch.fetch import Address
from prefixwatch.listener.webfile import read_terms
from prefixwatch.page.lines import PageError
from prefixwatch.replaying import read_page, replay
from prefixwatch.settings import ConfigError
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.trace import TraceError

_UNUSABLE = 2
_CHECK_INTERVAL = 1.0
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, 1 where a target gave nothing, 2 for bad input."""
    parsed = parser().parse_args(arguments)
    if sys.stdout is None:  # it was closed: `prefixwatch run ... >&-`
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  as long as the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding has no letter for is written as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _COMMANDS[parsed.command](parsed)
        sys.stdout.flush()  # here, where a closed pipe or a full disk is caught
        return status
    except (ConfigError, EventsError, TraceError, PageError, DemoError) as error:
        line = str(error).replace("\n", "\\n")  # a file's name may hold any character
        print(f"prefixwatch: {line}", file=sys.stderr)
        return _UNUSABLE
    except BrokenPipeError:
        _drop_output()
        return 1
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _drop_output()
        print(f"prefixwatch: standard output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _drop_output() -> None:
    """Let go where nothing can be written any longer, or Python complains of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _settings(parsed: argparse.Namespace) -> config.Config:
    names = (
        "listen",
        "web_config_file",
        "poll_interval",
        "targets_file",
        "target_host",
        "windows",
        "log_level",
        "log_format",
    )
    flags: dict[str, Any] = {name: value for name in names if (value := getattr(parsed, name)) is not None}
    events = {"endpoints": parsed.events, "topic": parsed.events_topic}
    if given := {name: value for name, value in events.items() if value is not None}:
        flags["events"] = given
    if parsed.urls:
        flags["targets"] = [{"url": url} for url in parsed.urls]
    file = parsed.config or os.environ.get(f"{config.PREFIX}CONFIG")
    return config.load(Path(file) if file else None, os.environ, flags)


def _access(parsed: argparse.Namespace) -> config.Access:
    return config.Access(
        bearer_token_file=parsed.bearer_token_file,
        ca_file=parsed.ca_file,
        cert_file=parsed.cert_file,
        key_file=parsed.key_file,
    )


def _run(parsed: argparse.Namespace) -> int:
    settings = _settings(parsed)
    log.set_up(level=settings.log_level, form=settings.log_format)
    return asyncio.run(serving.serve(settings))


def _check(parsed: argparse.Namespace) -> int:
    address = _address(parsed)
    log.set_up(level="error")
    try:
        source = config.EventsConfig(endpoints=tuple(parsed.events or ()), topic=parsed.events_topic or "").source(
            urlsplit(address.url).hostname or ""
        )
    except ValueError as error:
        raise ConfigError(f"--events: {error}") from None
    interval = parsed.interval or min(_CHECK_INTERVAL, parsed.seconds / 2)
    target = asyncio.run(
        serving.check(address, seconds=parsed.seconds, interval=interval, window=parsed.window, events=source)
    )
    if not target.engines and not parsed.json:
        print(f"prefixwatch: {target.target}: {report.why_nothing(target)}", file=sys.stderr)
        return 1
    _print([target], as_json=parsed.json)
    return 0 if target.engines else 1


def _record(parsed: argparse.Namespace) -> int:
    address = _address(parsed)
    return asyncio.run(serving.record(address, parsed.file, seconds=parsed.seconds, interval=parsed.interval))


def _read(parsed: argparse.Namespace) -> int:
    is_piped = parsed.file == "-"
    if is_piped and sys.stdin is None:
        raise ConfigError("standard input: it is closed")
    name = "standard input" if is_piped else parsed.file
    try:
        with nullcontext(sys.stdin.buffer) if is_piped else Path(name).open("rb") as stream:
            content = stream.read(serving.MAX_PAGE_BYTES + 1)  # a device, or a pipe, may never end
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
    if len(content) > serving.MAX_PAGE_BYTES:
        raise ConfigError(f"{name}: larger than {serving.MAX_PAGE_BYTES // 2**20} MiB: no engine's page is")
    if not content.strip():
        raise ConfigError(f"{name}: the page is empty")
    try:
        target = read_page(content, name)
    except PageError as error:
        raise ConfigError(f"{name}: {error}") from None
    _print([target], as_json=parsed.json)
    return 0


def _replay(parsed: argparse.Namespace) -> int:
    done = replay(parsed.file, until=parsed.at, kv_events=parsed.kv_events)
    if done.unused:
        print(
            f"prefixwatch: {parsed.file}: {done.unused} of {done.used + done.unused} pages could not be used: "
            f"{done.first_fault}",
            file=sys.stderr,
        )
    target = done.watch.state((parsed.window,)).snapshot(parsed.window, is_up=done.is_up)
    if not target.engines:
        raise TraceError(f"{parsed.file}: no page of an engine in it: {target.error or 'nothing was read'}")
    _print([target], as_json=parsed.json)
    return 0


def _demo(parsed: argparse.Namespace) -> int:
    log.set_up(level="warning", form="auto")
    return asyncio.run(
        demonstrate(
            parsed.scenario, listen=parsed.listen, engine_port=parsed.engine_port, release=parsed.release,
            seed=parsed.seed, tour_seconds=parsed.tour,
        )
    )  # fmt: skip


def _engine(parsed: argparse.Namespace) -> int:
    return asyncio.run(
        stand_in(
            parsed.scenario, listen=parsed.listen, release=parsed.release, seed=parsed.seed, tour_seconds=parsed.tour
        )
    )


def _compare(parsed: argparse.Namespace) -> int:
    if (parsed.after is None) == (parsed.at is None):
        raise ConfigError("compare: give two traces, or one with --at to cut it")
    before, whole = replay(parsed.before, until=parsed.at), replay(parsed.after or parsed.before)
    seconds = None
    if parsed.at is not None:
        seconds = whole.watch.time - before.watch.time
        if seconds <= 0:
            raise ConfigError(f"compare: nothing of {parsed.before} lies after --at")
    found = compared(before.watch, whole.watch, after_seconds=seconds)
    if not found:
        raise ConfigError("compare: no engine is in both")
    if parsed.json:
        document = msgspec.json.encode({"engines": [one.to_json() for one in found]})
        _write_json(msgspec.json.format(document, indent=2))
    else:
        report.show_comparison(found, report.console())
    return 0


def _config(parsed: argparse.Namespace) -> int:
    settings = _settings(parsed)
    if settings.web_config_file:
        read_terms(Path(settings.web_config_file))  # refused here as by `run`
    print(config.shown(settings), end="")
    return 0


def _print(targets: list[TargetSnapshot], *, as_json: bool) -> None:
    if as_json:
        _write_json(snapshot.encoded(targets))
    else:
        report.show(targets, report.console())


def _write_json(document: bytes) -> None:
    """Write it as UTF-8, as all JSON is, whatever the terminal's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(document + b"\n")


def _address(parsed: argparse.Namespace) -> Address:
    try:
        url = url_of(parsed.url)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Address(url=url, access=_access(parsed))


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "check": _check,
    "read": _read,
    "replay": _replay,
    "compare": _compare,
    "record": _record,
    "demo": _demo,
    "engine": _engine,
    "config": _config,
}
