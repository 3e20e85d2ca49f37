"""Configuration: defaults < YAML file < environment (PREFIXWATCH_*) < flags."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from prefixwatch.addresses import HIDDEN, host_and_port, is_host, one_line, url_of
from prefixwatch.catalog import RESERVED_LABELS
from prefixwatch.diagnosis import Thresholds
from prefixwatch.eventstream import EventSource, endpoint_at
from prefixwatch.figures.remembered import DEFAULT_BOUND
from prefixwatch.settings import ConfigError, Duration, converted, read

PREFIX = "PREFIXWATCH_"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NUMBER = re.compile(r"[0-9]{1,18}")
_PORT = re.compile(r"[0-9]{1,5}")
_MIN_INTERVAL = 0.2
_AMOUNTS = ("min_evictions", "min_requests", "warm_up_seconds", "output_dwarfs_prompt")
"""The thresholds that are no shares."""

# What Kubernetes sets in every pod beside a Service that is called prefixwatch.
_OF_KUBERNETES = re.compile(rf"{PREFIX}(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)")


class Access(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach an engine that asks who is there. Paths of files, which are reread."""

    bearer_token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class EventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where engines publish their cache events; none are watched without `endpoints`.

    Endpoints are written as vLLM's --kv-events-config has them, one a data-parallel rank; "*" is
    the target's host. `remembered_blocks` bounds the memory of each engine: 200,000 take 70 MB.
    """

    endpoints: tuple[str, ...] = ()
    replay_endpoints: tuple[str, ...] = ()
    topic: str = ""
    remembered_blocks: Annotated[int, msgspec.Meta(ge=1000, le=50_000_000)] = DEFAULT_BOUND

    def source(self, host: str) -> EventSource | None:
        """Return where a target on `host` publishes, None where no events are watched."""
        if not self.endpoints:
            return None
        source = EventSource(
            endpoints=self.endpoints, replay_endpoints=self.replay_endpoints, topic=self.topic,
            bound=self.remembered_blocks,
        )  # fmt: skip
        return source.at(host)


class TargetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One target: `url`; or `dns`, a URL polled at each address behind its host's name.

    `name` stands for host:port in the label `target`.
    """

    url: str | None = None
    dns: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    access: Access = Access()
    events: EventsConfig | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration; see README, "Configuration", for what each key does."""

    targets: tuple[TargetConfig, ...] = ()
    targets_file: str | None = None
    target_host: str | None = None
    listen: str = ":9840"
    web_config_file: str | None = None
    poll_interval: Duration = Duration(5)
    poll_timeout: Duration = Duration(4)
    max_backoff: Duration = Duration(15)
    stale_after_polls: Annotated[int, msgspec.Meta(ge=1)] = 3
    forget_after: Duration = Duration(60)
    discovery_interval: Duration = Duration(15)
    windows: tuple[Duration, ...] = (Duration(60), Duration(300), Duration(3600))
    diagnosis_window: Duration = Duration(300)
    diagnosis_hold: Duration = Duration(60)
    thresholds: Thresholds = Thresholds()
    max_page_bytes: Annotated[int, msgspec.Meta(ge=1024, le=2**30)] = 16 * 2**20
    access: Access = Access()
    events: EventsConfig = EventsConfig()
    log_level: str = "info"
    log_format: str = "auto"

    def name_of(self, target: TargetConfig) -> str:
        """Return the label `target` of one that is a `url`: its name, else host:port with `target_host` as the host.

        A sidecar polls localhost, and its engine is known by the pod's address.
        """
        return _name_of(target, self.target_host)

    @property
    def address(self) -> tuple[str | None, int]:
        """The host and port to listen on; no host is every address."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]") or None, int(port)


def load(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any], *, needs_target: bool = True
) -> Config:
    """Return the effective configuration. Raises `ConfigError`."""
    layers = [(str(file), _from_file(file) if file else {}), *_from_environment(environment), ("command line", flags)]
    settings: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for where, layer in layers:
        try:
            converted(layer, Config, "config")
        except ConfigError as error:
            raise ConfigError(f"{error} ({where})") from None
        settings = _over(settings, layer)
        sources |= dict.fromkeys(_keys(layer), where)
    config = _fitted(converted(settings, Config, "config"), settings)
    try:
        _check(config, needs_target=needs_target)
    except ConfigError as error:
        places = ", ".join(dict.fromkeys(sources[key] for key in _concerned(str(error)) if key in sources))
        raise ConfigError(f"config: {error}{f' ({places})' if places else ''}") from None
    return config


def _keys(layer: Mapping[str, Any]) -> list[str]:
    """Return the keys of a layer; of `events`, each of whose keys counts for itself, as "events.topic"."""
    return [key for key in layer if key != "events"] + [f"events.{key}" for key in layer.get("events") or ()]


def _concerned(fault: str) -> list[str]:
    """Return the keys that a fault is of: the one it begins with, and one in brackets that does not go with it."""
    return re.findall(r"^(?:events\.)?\w+|(?<= \()\w+(?=\))", fault)


def _fitted(config: Config, settings: Collection[str]) -> Config:
    """Return a configuration with the defaults of what is not among the settings fitted to the rest."""
    if "windows" not in settings:
        windows = tuple(window for window in config.windows if window >= 2 * config.poll_interval)
        config = msgspec.structs.replace(config, windows=windows or config.windows)
    if "diagnosis_window" not in settings and config.windows and config.diagnosis_window not in config.windows:
        middle = sorted(config.windows)[(len(config.windows) - 1) // 2]
        config = msgspec.structs.replace(config, diagnosis_window=middle)
    return config


def read_targets(file: Path) -> tuple[TargetConfig, ...]:
    """Read a targets file: a list of targets, or of Prometheus's `{targets, labels}` groups."""
    content = read(file)
    if not isinstance(content, list):
        raise ConfigError(f"{file}: this must be a list of targets")
    entries: list[Any] = []
    for entry in content:
        if isinstance(entry, dict) and isinstance(entry.get("targets"), list):
            labels = entry.get("labels") or {}
            if isinstance(labels, dict):
                labels = {name: value for name, value in labels.items() if not _is_of_prometheus(str(name))}
            others = {name: value for name, value in entry.items() if name not in ("targets", "labels")}
            entries += [{"url": address, "labels": labels, **others} for address in entry["targets"]]
        else:
            entries.append(entry)
    targets: tuple[TargetConfig, ...] = converted(entries, tuple[TargetConfig, ...], str(file))
    try:
        _check_targets(targets, None)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    return targets


def _is_of_prometheus(label: str) -> bool:
    """Whether a label of a group means something to Prometheus alone."""
    return label.startswith("__") or label in ("job", "instance")


def shown(config: Config) -> str:
    """Return the effective configuration as YAML. Secrets stay in their files; queries of URLs are hidden."""
    settings = msgspec.to_builtins(config, enc_hook=str)
    for target in settings["targets"]:
        for kind in ("url", "dns"):
            if target[kind]:
                target[kind] = re.sub(r"\?.+", f"?{HIDDEN}", target[kind])
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def _from_file(file: Path) -> dict[str, Any]:
    content = read(file)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: this must be a mapping of settings, like `poll_interval: 5s`")
    return content


def _over(settings: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with later ones over them. Of `events` each key counts; replay endpoints belong to their endpoints."""
    whole = {**settings, **later}
    if before := settings.get("events"):
        events = {**before, **later.get("events", {})}
        if "endpoints" in later.get("events", {}) and "replay_endpoints" not in later["events"]:
            events.pop("replay_endpoints", None)
        whole["events"] = events
    return whole


def _from_environment(environment: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Read PREFIXWATCH_POLL_INTERVAL=1s and its like, each by its name; lists are separated by commas."""
    layers: list[tuple[str, dict[str, Any]]] = []
    fields = {field.name: field for field in msgspec.structs.fields(Config)}
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name == f"{PREFIX}CONFIG" or _OF_KUBERNETES.fullmatch(name):
            continue
        key = name.removeprefix(PREFIX).lower()
        if key not in fields or key == "access":
            known = ", ".join(sorted(f"{PREFIX}{field.upper()}" for field in fields if field != "access"))
            raise ConfigError(f"config: {one_line(name)}: there is no such setting; there are {known}")
        value: Any
        if key == "targets":
            value = [{"url": url.strip()} for url in text.split(",") if url.strip()]
        elif key == "events":
            value = {"endpoints": [part.strip() for part in text.split(",") if part.strip()]}
        elif key == "windows":
            value = [part.strip() for part in text.split(",") if part.strip()]
        elif fields[key].type in (str, str | None, Duration):
            value = text
        else:
            value = int(text) if _NUMBER.fullmatch(text) else text
        layers.append((name, {key: value}))
    return layers


def _check(config: Config, *, needs_target: bool) -> None:
    """Refuse values that each are of the right kind, and cannot be meant. Raises `ConfigError`, which begins with the key."""
    _check_targets(config.targets, config.target_host)
    _check_events(config.events, "events")
    if needs_target and not config.targets and not config.targets_file:
        raise ConfigError(
            f"targets: none; name a vLLM, e.g. `prefixwatch run http://localhost:8000/metrics` or {PREFIX}TARGETS"
        )
    host, _, port = config.listen.rpartition(":")
    if not (_PORT.fullmatch(port) and int(port) <= 65535) or (":" in host and not host.startswith("[")):
        _refuse("listen", config.listen, 'use a form like ":9840" or "127.0.0.1:9840"')
    if config.poll_interval < _MIN_INTERVAL:
        _refuse("poll_interval", config.poll_interval, f"below {_MIN_INTERVAL:g}s a poll costs the engine too much")
    for name in ("poll_timeout", "max_backoff", "forget_after", "discovery_interval"):
        if not getattr(config, name) > 0:
            _refuse(name, getattr(config, name), "must be above 0")
    if not config.windows:
        _refuse("windows", "[]", 'name at least one, like "5m"')
    for position, window in enumerate(config.windows):
        if window < 2 * config.poll_interval:
            _refuse(f"windows[{position}]", window, f"shorter than two polls of {config.poll_interval} (poll_interval)")
        if window in config.windows[:position]:
            _refuse(f"windows[{position}]", window, "stands twice")
    if config.diagnosis_window not in config.windows:
        _refuse(
            "diagnosis_window",
            config.diagnosis_window,
            f"must be one of windows: {', '.join(map(str, config.windows))}",
        )
    if config.log_level not in ("debug", "info", "warning", "error"):
        _refuse("log_level", config.log_level, "must be debug, info, warning or error")
    if config.log_format not in ("auto", "json", "text"):
        _refuse("log_format", config.log_format, "must be auto, json or text")
    _check_thresholds(config.thresholds)
    _check_access(config.access, "access")


def _check_thresholds(thresholds: Thresholds) -> None:
    for name, value in msgspec.structs.asdict(thresholds).items():
        if name in _AMOUNTS:
            if not 0 <= value < float("inf"):
                _refuse(f"thresholds.{name}", value, "must be 0 or more")
        elif not 0 <= value <= 1:
            _refuse(f"thresholds.{name}", value, "must be a share: from 0 to 1")
    if thresholds.low_of_ceiling > thresholds.near_ceiling:
        _refuse(
            "thresholds.low_of_ceiling", thresholds.low_of_ceiling, f"is above near_ceiling, {thresholds.near_ceiling}"
        )


def _check_events(events: EventsConfig, path: str) -> None:
    for kind in ("endpoints", "replay_endpoints"):
        for position, endpoint in enumerate(getattr(events, kind)):
            try:
                endpoint_at(endpoint, "host")
            except ValueError as error:
                raise ConfigError(f"{path}.{kind}[{position}]: {error}") from None
    if events.replay_endpoints and len(events.replay_endpoints) != len(events.endpoints):
        raise ConfigError(
            f"{path}.replay_endpoints: {len(events.replay_endpoints)} of them: as many as endpoints, or none"
        )


def _name_of(target: TargetConfig, host: str | None) -> str:
    return target.name or host_and_port(url_of(target.url or target.dns or ""), host=host)


def _check_targets(targets: Sequence[TargetConfig], host: str | None) -> None:
    if host is not None and not is_host(host):
        _refuse("target_host", host, "must be an address or a name, without a port")
    names: dict[str, int] = {}
    for position, target in enumerate(targets):
        path = f"targets[{position}]"
        if bool(target.url) == bool(target.dns):
            raise ConfigError(f"{path}: give either url or dns")
        if target.dns and target.name:
            raise ConfigError(f'{path}.name: "{one_line(target.name)}": a dns name stands for many targets')
        kind = "url" if target.url else "dns"
        try:
            name = _name_of(target, host)
        except ValueError as error:
            raise ConfigError(f"{path}.{kind}: {error}") from None
        if target.url:
            if name in names:
                fault = f'"{one_line(name)}" is targets[{names[name]}] already; give one of them a name of its own'
                fault += " (target_host)" if host else ""
                raise ConfigError(f"{path}: {fault}")
            names[name] = position
        _check_access(target.access, f"{path}.access")
        if target.events is not None:
            _check_events(target.events, f"{path}.events")
        for label in target.labels:
            if not _LABEL.fullmatch(label) or label.startswith("__"):
                raise ConfigError(f'{path}.labels: "{one_line(label)}" is not a label name')
            if label in RESERVED_LABELS:
                raise ConfigError(f'{path}.labels: "{label}" is one of the exporter\'s own labels')


def _check_access(access: Access, where: str) -> None:
    if bool(access.cert_file) != bool(access.key_file):
        raise ConfigError(f"{where}: cert_file and key_file go together")


def _refuse(path: str, value: object, why: str) -> None:
    raise ConfigError(f'{path}: "{one_line(value) if isinstance(value, str) else value}": {why}')
