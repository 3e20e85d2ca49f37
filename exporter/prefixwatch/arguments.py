"""What the command line takes: commands, their arguments, and the forms of these."""

import argparse
from pathlib import Path

from prefixwatch import __version__, config
from prefixwatch.demo.command import TOUR_SECONDS
from prefixwatch.demo.releases import LATEST, RELEASES
from prefixwatch.demo.scenarios import SCENARIOS
from prefixwatch.settings import Duration


def parser() -> argparse.ArgumentParser:
    """Return the parser; `command` of what it parses is the name of the command."""
    whole = argparse.ArgumentParser(
        prog="prefixwatch", description="What vLLM's prefix cache does, why it misses, and what to change."
    )
    whole.add_argument("--version", action="version", version=f"prefixwatch {__version__}")
    commands = whole.add_subparsers(required=True, dest="command", metavar="COMMAND")
    json_flag = argparse.ArgumentParser(add_help=False)
    json_flag.add_argument("--json", action="store_true", help="print JSON instead of a table")

    run = commands.add_parser("run", help="run the exporter")
    _add_settings(run)

    check = commands.add_parser("check", parents=[json_flag], help="poll one vLLM, print its figures, exit")
    check.add_argument("url", metavar="URL", help='like "http://localhost:8000/metrics"')
    check.add_argument(
        "--for", dest="seconds", type=_duration, default=Duration(30), metavar="D", help="how long (30s)"
    )
    check.add_argument("--interval", type=_duration, metavar="D", help="between polls (1s)")
    check.add_argument("--window", type=_duration, metavar="D", help="figures of the last D only")
    _add_events(check)
    _add_access(check)

    read = commands.add_parser("read", parents=[json_flag], help="read one page: figures since the engine's start")
    read.add_argument("file", metavar="FILE", help='a saved page of /metrics; "-" for standard input')

    again = commands.add_parser("replay", parents=[json_flag], help="read a recorded trace")
    again.add_argument("file", metavar="FILE", type=Path, help="a trace, or the folder it lies in")
    again.add_argument("--window", type=_duration, metavar="D", help="figures of the last D only")
    again.add_argument("--at", type=_moment, metavar="T", help="as of T: unix seconds, or like 45s from the start")
    again.add_argument(
        "--kv-events", type=Path, metavar="FILE", help="recorded cache events of the same time, or the folder"
    )

    compare = commands.add_parser(
        "compare", parents=[json_flag], help="before and after: two traces, or one cut in two"
    )
    compare.add_argument("before", metavar="TRACE", type=Path)
    compare.add_argument("after", metavar="TRACE", type=Path, nargs="?")
    compare.add_argument(
        "--at", type=_moment, metavar="T", help="cut one trace here: unix seconds, or like 45s from the start"
    )

    record = commands.add_parser("record", help="write a trace of one vLLM's pages, to replay later")
    record.add_argument("url", metavar="URL")
    record.add_argument("file", metavar="FILE", type=Path, help="gzipped where it ends in .gz")
    record.add_argument("--for", dest="seconds", type=_duration, metavar="D", help="how long (until Ctrl-C)")
    record.add_argument("--interval", type=_duration, default=Duration(1), metavar="D", help="between polls (1s)")
    _add_access(record)

    demo = commands.add_parser("demo", help="a stand-in engine, traffic with a known cause, and the exporter")
    demo.add_argument("--listen", default="127.0.0.1:9840", metavar="[HOST]:PORT", help="the exporter (127.0.0.1:9840)")
    demo.add_argument(
        "--engine-port", type=_port, default=0, metavar="N", help="of the engine, on 127.0.0.1 (any free one)"
    )
    _add_traffic(demo)

    engine = commands.add_parser("engine", help="the stand-in engine and its traffic alone, without the exporter")
    engine.add_argument("--listen", default="127.0.0.1:8000", metavar="[HOST]:PORT", help="the engine (127.0.0.1:8000)")
    _add_traffic(engine)

    effective = commands.add_parser("config", help="print the effective configuration, secrets hidden")
    _add_settings(effective)
    return whole


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
    parser.add_argument("--events-topic", metavar="TOPIC", help="as in vLLM's --kv-events-config")


def _add_access(parser: argparse.ArgumentParser) -> None:
    for name, text in (
        ("bearer_token_file", "a file with the token that the target wants"),
        ("ca_file", "certificates to trust"),
        ("cert_file", "this client's certificate"),
        ("key_file", "this client's key"),
    ):
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=text)


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
