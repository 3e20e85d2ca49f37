"""Which targets there are: named ones, all addresses behind a DNS name, a file that is reread."""

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from prefixwatch.addresses import host_and_port, url_of
from prefixwatch.config import Access, Config, TargetConfig, read_targets
from prefixwatch.eventstream import EventSource
from prefixwatch.fetch import Address
from prefixwatch.names import Names
from prefixwatch.settings import ConfigError

_log = logging.getLogger(__name__)

LOOKUP_SECONDS = 5.0
"""How long to wait for the addresses behind a name."""

_Stamp = tuple[int, int, int]
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One address to poll. `name` is its label `target`: host:port, or what the configuration says."""

    name: str
    address: Address
    labels: Mapping[str, str]
    events: EventSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsName:
    """A configured DNS name, as host:port, and how many addresses are known behind it."""

    name: str
    labels: Mapping[str, str]
    addresses: int


class Discovery:
    """Find the targets of a configuration, again and again.

    What cannot be found anew (the name server is gone, the file is half written) stays as it was. A
    name server that says that there is no such name has answered: a Service without any pod.
    """

    def __init__(self, config: Config, names: Names) -> None:
        self._config = config
        self._names = names
        self._resolved: dict[str, list[Target]] = {}
        self._from_file: tuple[TargetConfig, ...] = ()
        self._file_stamp: _Stamp | None = None
        self._faults: dict[str, set[str]] = {}
        self.is_file_good: bool | None = None if config.targets_file is None else False
        self.dns_names: Sequence[DnsName] = ()
        """The names that a name server has answered for."""
        self.is_done = False

    async def targets(self) -> dict[str, Target]:
        """Return all targets by name. Where two have one name the first counts."""
        if self._config.targets_file:
            await self._reread(Path(self._config.targets_file))
        configured = (*self._config.targets, *self._from_file)
        expanded = await asyncio.gather(*(self._expanded(one) for one in configured))
        self.is_done = True
        self.dns_names = [self._counted(one) for one in configured if repr(one) in self._resolved]
        return self._by_name([target for targets in expanded for target in targets])

    def _counted(self, one: TargetConfig) -> DnsName:
        name = host_and_port(url_of(one.dns or ""))
        return DnsName(name=name, labels=one.labels, addresses=len(self._resolved[repr(one)]))

    def _by_name(self, targets: Sequence[Target]) -> dict[str, Target]:
        found: dict[str, Target] = {}
        for target in targets:
            found.setdefault(target.name, target)
        clashing = {t.name for t in targets if t.address.url != found[t.name].address.url}
        for name in found:
            if name in clashing:
                self._is_ill(name, "several targets have this name: the first counts; give them names of their own")
            else:
                self._is_well(name)
        return found

    async def _expanded(self, one: TargetConfig) -> list[Target]:
        access = one.access if one.access != Access() else self._config.access
        if one.url:
            url = url_of(one.url)
            address = Address(url=url, access=access)
            events = self._events(one, urlsplit(url).hostname)
            return [Target(name=self._config.name_of(one), address=address, labels=one.labels, events=events)]
        url, key = url_of(one.dns or ""), repr(one)
        source = f"dns {host_and_port(url)}"
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                self._resolved[key] = await self._looked_up(url, one, access)
        except TimeoutError:
            self._is_ill(source, f"no answer within {LOOKUP_SECONDS:g} s; the addresses known stay")
        except (OSError, ValueError) as error:
            if isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_NAME:
                self._resolved[key] = []
                self._is_ill(source, "there is no such name, or no address behind it")
            else:
                words = error.strerror if isinstance(error, OSError) else None
                self._is_ill(source, f"the name does not resolve ({words or error}); the addresses known stay")
        else:
            self._is_well(source)
        return self._resolved.get(key, [])

    async def _looked_up(self, url: str, one: TargetConfig, access: Access) -> list[Target]:
        parts = urlsplit(url)
        host, _, port = host_and_port(url).rpartition(":")
        answers = await self._names.addresses(parts.hostname or "", int(port))
        # A pod with an IPv4 and an IPv6 address is one engine: one family is enough.
        family = min(found for found, _ in answers)
        targets = []
        for ip in sorted({ip for found, ip in answers if found == family}):
            place = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
            address = Address(url=parts._replace(netloc=place).geturl(), access=access, server_name=f"{host}:{port}")
            targets.append(Target(name=place, address=address, labels=one.labels, events=self._events(one, ip)))
        return targets

    def _events(self, one: TargetConfig, host: str | None) -> EventSource | None:
        config = self._config.events if one.events is None else one.events
        return config.source(host or "")

    async def _reread(self, file: Path) -> None:
        try:
            changed = await asyncio.to_thread(_read, file, self._file_stamp)
        except ConfigError as error:
            self.is_file_good, self._file_stamp = False, None
            self._is_ill(str(file), f"{error}; the targets known stay")
        else:
            if changed:
                self._from_file, self._file_stamp = changed
            self.is_file_good = True
            self._is_well(str(file))

    def _is_ill(self, what: str, message: str) -> None:
        said = self._faults.setdefault(what, set())
        if message not in said:  # nor is it said again where two alternate
            said.add(message)
            _log.warning("discovery failed", extra={"source": what, "error": message})

    def _is_well(self, what: str) -> None:
        if self._faults.pop(what, None):
            _log.info("discovery works again", extra={"source": what})


def _read(file: Path, known: _Stamp | None) -> tuple[tuple[TargetConfig, ...], _Stamp] | None:
    """Return the targets of a file, None where it is the one that is known. Raises `ConfigError`."""
    try:
        stat = file.stat()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return None if stamp == known else (read_targets(file), stamp)
