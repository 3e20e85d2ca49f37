"""Configuration: defaults < YAML file < environment (PREFIXWATCH_*) < flags.

Every error names the key path and the value: `config: windows[1]: "5 min" is not a duration; ...`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import yaml

from prefixwatch.catalog import RESERVED_LABELS

PREFIX = "PREFIXWATCH_"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MIN_INTERVAL = 0.2
# What Kubernetes sets in every pod beside a Service that is called prefixwatch.
_OF_KUBERNETES = re.compile(rf"{PREFIX}(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)")
_HIDDEN = "<hidden>"


class ConfigError(Exception):
    """A configuration that cannot be used: names the key path, the value and what to do."""


class Duration(float):
    """Seconds, written as "5m" or "1h30m"."""

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read a duration. Raises ValueError saying what form it has."""
        parts = _DURATION.findall(text.replace(" ", "") if isinstance(text, str) else "")
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError(f'"{text}" is not a duration; use a form like "5m"')
        return cls(sum(float(number) * _UNITS[unit] for number, unit in parts))

    def __str__(self) -> str:
        """Return the shortest form: "90s" stays "1m30s", 300 s are "5m"."""
        if self < 1 or self != int(self):
            return f"{float(self) * 1000:g}ms" if self < 1 else f"{float(self):g}s"
        left, text = int(self), ""
        for unit in ("d", "h", "m", "s"):
            count, left = divmod(left, int(_UNITS[unit]))
            text += f"{count}{unit}" if count else ""
        return text or "0s"


class Access(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach an engine that asks who is there. Paths of files, which are reread."""

    bearer_token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class TargetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One target: `url`; or `dns`, a URL polled at each address behind its host's name.

    `name` stands for host:port in the label `target`.
    """

    url: str | None = None
    dns: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    access: Access = Access()


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration; see README, "Configuration", for what each key does."""

    targets: tuple[TargetConfig, ...] = ()
    targets_file: str | None = None
    listen: str = ":9840"
    poll_interval: Duration = Duration(5)
    poll_timeout: Duration = Duration(4)
    max_backoff: Duration = Duration(15)
    stale_after_polls: Annotated[int, msgspec.Meta(ge=1)] = 3
    forget_after: Duration = Duration(60)
    discovery_interval: Duration = Duration(15)
    windows: tuple[Duration, ...] = (Duration(60), Duration(300), Duration(3600))
    diagnosis_window: Duration = Duration(300)
    max_page_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 16 * 2**20
    access: Access = Access()
    log_level: str = "info"
    log_format: str = "auto"

    @property
    def address(self) -> tuple[str | None, int]:
        """The host and port to listen on; no host is every address."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]") or None, int(port)


def load(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any], *, needs_target: bool = True
) -> Config:
    """Return the effective configuration. Raises `ConfigError`."""
    settings = _from_file(file) if file else {}
    settings = {**settings, **_from_environment(environment), **flags}
    config = _converted(settings, Config, "config")
    _check(config, needs_target=needs_target)
    return config


def read_targets(file: Path) -> tuple[TargetConfig, ...]:
    """Read a targets file: a list of targets, or of Prometheus's `{targets, labels}` groups."""
    content = _yaml(file)
    if not isinstance(content, list):
        raise ConfigError(f"{file}: this must be a list of targets")
    entries: list[Any] = []
    for entry in content:
        if isinstance(entry, dict) and isinstance(entry.get("targets"), list):
            labels = {k: v for k, v in (entry.get("labels") or {}).items() if not str(k).startswith("__")}
            entries += [{"url": address, "labels": labels} for address in entry["targets"]]
        else:
            entries.append(entry)
    targets = _converted(entries, tuple[TargetConfig, ...], str(file))
    _check_targets(targets, str(file))
    return targets


def url_of(text: str) -> str:
    """Complete what people write for a target: "localhost:8000" becomes http://localhost:8000/metrics.

    Raises ValueError saying what is wrong.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        port_is_fine = False
        parts = urlsplit("")
    if not port_is_fine or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'"{_without_credentials(text)}" is not a URL; use a form like "http://localhost:8000/metrics"')
    if parts.username or parts.password:
        raise ValueError(f'"{_without_credentials(text)}": no credentials in a URL; use access.bearer_token_file')
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    return parts._replace(path=path, fragment="").geturl()


def host_and_port(url: str) -> str:
    """Return the `target` of a URL: host:port, the scheme's port where none is written."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or {'https': 443}.get(parts.scheme, 80)}"


def shown(config: Config) -> str:
    """Return the effective configuration as YAML. Secrets stay in their files; queries of URLs are hidden."""
    text = yaml.safe_dump(msgspec.to_builtins(config, enc_hook=str), sort_keys=False, allow_unicode=True)
    return re.sub(r"\?\S+", f"?{_HIDDEN}", text)


def _from_file(file: Path) -> dict[str, Any]:
    content = _yaml(file)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: this must be a mapping of settings, like `poll_interval: 5s`")
    return content


def _yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}:" if mark else ""
        raise ConfigError(f"{file}:{where} not YAML: {getattr(error, 'problem', None) or 'broken'}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read PREFIXWATCH_POLL_INTERVAL=1s and its like; lists are separated by commas."""
    settings: dict[str, Any] = {}
    fields = {field.name: field for field in msgspec.structs.fields(Config)}
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name == f"{PREFIX}CONFIG" or _OF_KUBERNETES.fullmatch(name):
            continue
        key = name.removeprefix(PREFIX).lower()
        if key not in fields or key == "access":
            known = ", ".join(sorted(f"{PREFIX}{field.upper()}" for field in fields if field != "access"))
            raise ConfigError(f"config: {name}: there is no such setting; there are {known}")
        if key == "targets":
            settings[key] = [{"url": url.strip()} for url in text.split(",") if url.strip()]
        elif key == "windows":
            settings[key] = [part.strip() for part in text.split(",") if part.strip()]
        elif fields[key].type in (str, str | None, Duration):
            settings[key] = text
        else:
            settings[key] = int(text) if text.isdigit() else text
    return settings


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=_decoded)
    except msgspec.ValidationError as error:
        fault, _, path = str(error).partition(" - at `$")
        raise ConfigError(f"{where}: {_explained(fault, path.strip('`.'), value)}") from None


def _decoded(kind: type, value: Any) -> Any:
    if kind is Duration:
        return Duration.parse(value)
    raise NotImplementedError(kind)


def _explained(fault: str, path: str, value: Any) -> str:
    """Turn msgspec's words into: key path, what is wrong, the value."""
    unknown = re.search(r"unknown field `(.*)`", fault)
    if unknown:
        return f"{path + '.' if path else ''}{unknown[1]}: there is no such setting"
    if fault.startswith('"') or "is not a duration" in fault:
        return f"{path}: {fault}"
    found = value
    for key in re.findall(r"[^.\[\]]+", path):
        try:
            found = found[int(key)] if isinstance(found, list | tuple) else found[key]
        except (KeyError, IndexError, TypeError, ValueError):
            return f"{path}: {fault}"
    fault = fault[0].lower() + fault[1:].replace("`", "")
    return f'{path}: "{_without_credentials(str(found))}": {fault}'


def _without_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", f"//{_HIDDEN}@", re.sub(r"^[^/@\s]+:[^/@\s]+@", f"{_HIDDEN}@", text))


def _check(config: Config, *, needs_target: bool) -> None:
    """Refuse values that each are of the right kind, and cannot be meant."""
    _check_targets(config.targets, "config")
    if needs_target and not config.targets and not config.targets_file:
        raise ConfigError(
            "config: targets: none; name a vLLM, e.g. `prefixwatch run http://localhost:8000/metrics`"
            f" or {PREFIX}TARGETS"
        )
    host, _, port = config.listen.rpartition(":")
    if not (port.isdigit() and int(port) <= 65535) or (":" in host and not host.startswith("[")):
        _refuse("listen", config.listen, 'use a form like ":9840" or "127.0.0.1:9840"')
    if config.poll_interval < _MIN_INTERVAL:
        _refuse("poll_interval", config.poll_interval, f"below {_MIN_INTERVAL:g}s a poll costs the engine too much")
    if not 0 < config.poll_timeout:
        _refuse("poll_timeout", config.poll_timeout, "must be above 0")
    if not config.windows:
        _refuse("windows", "[]", 'name at least one, like "5m"')
    for position, window in enumerate(config.windows):
        if window < 2 * config.poll_interval:
            _refuse(f"windows[{position}]", window, f"shorter than two polls of {config.poll_interval}")
        if window in config.windows[:position]:
            _refuse(f"windows[{position}]", window, "stands twice")
    if config.diagnosis_window not in config.windows:
        _refuse("diagnosis_window", config.diagnosis_window, "must be one of windows")
    if config.log_level not in ("debug", "info", "warning", "error"):
        _refuse("log_level", config.log_level, "must be debug, info, warning or error")
    if config.log_format not in ("auto", "json", "text"):
        _refuse("log_format", config.log_format, "must be auto, json or text")
    if bool(config.access.cert_file) != bool(config.access.key_file):
        _refuse("access", "", "cert_file and key_file go together")


def _check_targets(targets: Sequence[TargetConfig], where: str) -> None:
    names: dict[str, int] = {}
    for position, target in enumerate(targets):
        path = f"targets[{position}]"
        if bool(target.url) == bool(target.dns):
            raise ConfigError(f"{where}: {path}: give either url or dns")
        if target.dns and target.name:
            raise ConfigError(f'{where}: {path}.name: "{target.name}": a dns name stands for many targets')
        kind, written = ("url", target.url) if target.url else ("dns", target.dns or "")
        try:
            name = target.name or host_and_port(url_of(written or ""))
        except ValueError as error:
            raise ConfigError(f"{where}: {path}.{kind}: {error}") from None
        if target.url:
            if name in names:
                raise ConfigError(
                    f'{where}: {path}: "{name}" is targets[{names[name]}] already; give one of them a name of its own'
                )
            names[name] = position
        for label in target.labels:
            if not _LABEL.fullmatch(label) or label.startswith("__"):
                raise ConfigError(f'{where}: {path}.labels: "{label}" is not a label name')
            if label in RESERVED_LABELS:
                raise ConfigError(f'{where}: {path}.labels: "{label}" is one of the exporter\'s own labels')


def _refuse(path: str, value: object, why: str) -> None:
    raise ConfigError(f'config: {path}: "{value}": {why}')
