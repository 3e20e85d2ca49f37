"""The command line: `prefixwatch` or `python -m prefixwatch`."""

import argparse
import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from prefixwatch import __version__, config, log, report, serving, snapshot
from prefixwatch.addresses import url_of
from prefixwatch.comparison import compared
from prefixwatch.demo.command import TOUR_SECONDS, demonstrate, stand_in
from prefixwatch.demo.errors import DemoError
from prefixwatch.demo.releases import LATEST, RELEASES
from prefixwatch.demo.scenarios import SCENARIOS
from prefixwatch.eventstream import EventsError
from prefixwatch.fetch import Address
from prefixwatch.listener.webfile import read_terms
from prefixwatch.page.exposition import PageError
from prefixwatch.replaying import read_page, replay
from prefixwatch.settings import ConfigError, Duration
from prefixwatch.snapshot import TargetSnapshot
from prefixwatch.trace import TraceError

_UNUSABLE = 2
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, 1 where a target gave nothing, 2 for bad input."""
    parsed = _parser().parse_args(arguments)
    if sys.stdout is None:  # it was closed: `prefixwatch run ... >&-`
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  as long as the process
    try:
        status = int(parsed.run(parsed))
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prefixwatch", description="What vLLM's prefix cache does, why it misses, and what to change."
    )
    parser.add_argument("--version", action="version", version=f"prefixwatch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    json_flag = argparse.ArgumentParser(add_help=False)
    json_flag.add_argument("--json", action="store_true", help="print JSON instead of a table")

    run = commands.add_parser("run", help="run the exporter")
    _add_settings(run)
    run.set_defaults(run=_run)

    check = commands.add_parser("check", parents=[json_flag], help="poll one vLLM, print its figures, exit")
    check.add_argument("url", metavar="URL", help='like "http://localhost:8000/metrics"')
    check.add_argument(
        "--for", dest="seconds", type=_duration, default=Duration(30), metavar="D", help="how long (30s)"
    )
    check.add_argument("--interval", type=_duration, default=Duration(1), metavar="D", help="between polls (1s)")
    check.add_argument("--window", type=_duration, metavar="D", help="figures of the last D only")
    _add_events(check)
    _add_access(check)
    check.set_defaults(run=_check)

    read = commands.add_parser("read", parents=[json_flag], help="read one page: figures since the engine's start")
    read.add_argument("file", metavar="FILE", help='a saved page of /metrics; "-" for standard input')
    read.set_defaults(run=_read)

    again = commands.add_parser("replay", parents=[json_flag], help="read a recorded trace")
    again.add_argument("file", metavar="FILE", type=Path, help="a trace, or the folder it lies in")
    again.add_argument("--window", type=_duration, metavar="D", help="figures of the last D only")
    again.add_argument("--at", type=_moment, metavar="T", help="as of T: unix seconds, or like 45s from the start")
    again.add_argument(
        "--kv-events", type=Path, metavar="FILE", help="recorded cache events of the same time, or the folder"
    )
    again.set_defaults(run=_replay)

    compare = commands.add_parser(
        "compare", parents=[json_flag], help="before and after: two traces, or one cut in two"
    )
    compare.add_argument("before", metavar="TRACE", type=Path)
    compare.add_argument("after", metavar="TRACE", type=Path, nargs="?")
    compare.add_argument(
        "--at", type=_moment, metavar="T", help="cut one trace here: unix seconds, or like 45s from the start"
    )
    compare.set_defaults(run=_compare)

    record = commands.add_parser("record", help="write a trace of one vLLM's pages, to replay later")
    record.add_argument("url", metavar="URL")
    record.add_argument("file", metavar="FILE", type=Path, help="gzipped where it ends in .gz")
    record.add_argument("--for", dest="seconds", type=_duration, metavar="D", help="how long (until Ctrl-C)")
    record.add_argument("--interval", type=_duration, default=Duration(1), metavar="D", help="between polls (1s)")
    _add_access(record)
    record.set_defaults(run=_record)

    demo = commands.add_parser("demo", help="a stand-in engine, traffic with a known cause, and the exporter")
    demo.add_argument("--listen", default="127.0.0.1:9840", metavar="[HOST]:PORT", help="the exporter (127.0.0.1:9840)")
    demo.add_argument(
        "--engine-port", type=_port, default=0, metavar="N", help="of the engine, on 127.0.0.1 (any free one)"
    )
    _add_traffic(demo)
    demo.set_defaults(run=_demo)

    engine = commands.add_parser("engine", help="the stand-in engine and its traffic alone, without the exporter")
    engine.add_argument("--listen", default="127.0.0.1:8000", metavar="[HOST]:PORT", help="the engine (127.0.0.1:8000)")
    _add_traffic(engine)
    engine.set_defaults(run=_engine)

    effective = commands.add_parser("config", help="print the effective configuration, secrets hidden")
    _add_settings(effective)
    effective.set_defaults(run=_config)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("urls", metavar="URL", nargs="*", help="targets; or name them in the configuration")
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"YAML ({config.PREFIX}CONFIG)")
    parser.add_argument("--listen", metavar="[HOST]:PORT", help="where to serve (:9840)")
    parser.add_argument(
        "--web-config-file", metavar="FILE", help="TLS and authentication for it, as other exporters have them"
    )
    parser.add_argument("--poll-interval", metavar="D", help="between polls (5s)")
    _add_events(parser)
    parser.add_argument("--targets-file", metavar="FILE", help="a list of targets, reread when it changes")
    parser.add_argument("--target-host", metavar="HOST", help="names the targets, instead of the host of their URL")
    parser.add_argument("--window", dest="windows", action="append", metavar="D", help="repeatable (1m, 5m, 1h)")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning, error")
    parser.add_argument("--log-format", metavar="FORMAT", help="json, text, auto")


def _add_traffic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario", metavar="SCENARIO", nargs="?", help=f"one of {', '.join(SCENARIOS)}; a tour of all without"
    )
    parser.add_argument("--release", default=LATEST, choices=RELEASES, help="the vLLM release whose page it shows")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the traffic")
    parser.add_argument(
        "--tour", type=_duration, default=Duration(TOUR_SECONDS), metavar="D", help="a stop of the tour (1m)"
    )


def _add_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--events", action="append", metavar="ENDPOINT",
        help='cache events, like "tcp://*:5557" (* is the target\'s host); again for each data-parallel rank',
    )  # fmt: skip
    parser.add_argument("--events-topic", default="", metavar="TOPIC", help="as in vLLM's --kv-events-config")


def _add_access(parser: argparse.ArgumentParser) -> None:
    for name, text in (
        ("bearer_token_file", "a file with the token that the target wants"),
        ("ca_file", "certificates to trust"),
        ("cert_file", "this client's certificate"),
        ("key_file", "this client's key"),
    ):
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=text)


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
    if parsed.events:
        flags["events"] = {"endpoints": parsed.events, "topic": parsed.events_topic}
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
        source = config.EventsConfig(endpoints=tuple(parsed.events or ()), topic=parsed.events_topic).source(
            urlsplit(address.url).hostname or ""
        )
    except ValueError as error:
        raise ConfigError(f"--events: {error}") from None
    target = asyncio.run(
        serving.check(address, seconds=parsed.seconds, interval=parsed.interval, window=parsed.window, events=source)
    )
    _print([target], as_json=parsed.json)
    return 0 if target.engines else 1


def _record(parsed: argparse.Namespace) -> int:
    address = _address(parsed)
    return asyncio.run(serving.record(address, parsed.file, seconds=parsed.seconds, interval=parsed.interval))


def _read(parsed: argparse.Namespace) -> int:
    if parsed.file == "-":
        content, name = sys.stdin.buffer.read(), "standard input"
    else:
        name = parsed.file
        try:
            content = Path(parsed.file).read_bytes()
        except OSError as error:
            raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
    try:
        target = read_page(content, name)
    except PageError as error:
        raise ConfigError(f"{name}: {error}") from None
    if not target.engines:
        raise ConfigError(f"{name}: {target.error}")
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
        sys.stdout.write(msgspec.json.format(document, indent=2).decode() + "\n")
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
        sys.stdout.write(snapshot.encoded(targets).decode() + "\n")
    else:
        report.show(targets, report.console())


def _address(parsed: argparse.Namespace) -> Address:
    try:
        url = url_of(parsed.url)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Address(url=url, access=_access(parsed))


def _duration(text: str) -> Duration:
    try:
        duration = Duration.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if duration <= 0:
        raise argparse.ArgumentTypeError(f'"{text}" must be above 0')
    return duration


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f'"{text}" is not a port: 0 to 65535, 0 for any that is free')
    return int(text)


def _moment(text: str) -> float:
    try:
        moment = float(text)
    except ValueError:
        return _duration(text)
    if not 0 <= moment < float("inf"):
        raise argparse.ArgumentTypeError(f'"{text}" is not a moment; use unix seconds, or a form like "45s"')
    return moment
