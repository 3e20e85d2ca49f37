"""Which targets there are: named ones, all addresses behind a DNS name, a file that is reread."""

import asyncio
import logging
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from prefixwatch.config import Access, Config, ConfigError, TargetConfig, host_and_port, read_targets, url_of
from prefixwatch.fetch import Address

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One address to poll. `name` is its label `target`: host:port, or what the configuration says."""

    name: str
    address: Address
    labels: Mapping[str, str]


class Discovery:
    """Find the targets of a configuration, again and again.

    What cannot be found anew (DNS is gone, the file is half written) stays as it was.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._resolved: dict[str, list[Target]] = {}
        self._from_file: tuple[TargetConfig, ...] = ()
        self._file_stamp: tuple[int, int] | None = None
        self._faults: set[str] = set()
        self.is_file_good: bool | None = None if config.targets_file is None else False
        self.is_done = False

    async def targets(self) -> dict[str, Target]:
        """Return all targets by name. Where two have one name the first counts."""
        if self._config.targets_file:
            self._reread(Path(self._config.targets_file))
        found: dict[str, Target] = {}
        for one in (*self._config.targets, *self._from_file):
            for target in await self._expanded(one):
                found.setdefault(target.name, target)
        self.is_done = True
        return found

    async def _expanded(self, one: TargetConfig) -> Iterable[Target]:
        access = one.access if one.access != Access() else self._config.access
        if one.url:
            url = url_of(one.url)
            address = Address(url=url, access=access)
            return [Target(name=one.name or host_and_port(url), address=address, labels=one.labels)]
        url = url_of(one.dns or "")
        try:
            self._resolved[_key(one)] = await _resolved(url, one, access)
            self._is_well(url)
        except OSError as error:
            self._is_ill(url, f"the name does not resolve ({error.strerror or error}); the addresses known stay")
        return self._resolved.get(_key(one), [])

    def _reread(self, file: Path) -> None:
        try:
            stat = file.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp == self._file_stamp:
                return
            self._from_file = read_targets(file)
            self._file_stamp = stamp
        except (ConfigError, OSError) as error:
            self.is_file_good = False
            self._is_ill(str(file), f"{error}; the targets known stay")
        else:
            self.is_file_good = True
            self._is_well(str(file))

    def _is_ill(self, what: str, message: str) -> None:
        if what not in self._faults:
            self._faults.add(what)
            _log.warning("discovery failed", extra={"source": what, "error": message})

    def _is_well(self, what: str) -> None:
        if what in self._faults:
            self._faults.discard(what)
            _log.info("discovery works again", extra={"source": what})


def _key(one: TargetConfig) -> str:
    return repr(one)


async def _resolved(url: str, one: TargetConfig, access: Access) -> list[Target]:
    parts = urlsplit(url)
    host, _, port = host_and_port(url).rpartition(":")
    answers = await asyncio.get_running_loop().getaddrinfo(parts.hostname, int(port), type=socket.SOCK_STREAM)
    # A pod with an IPv4 and an IPv6 address is one engine: one family is enough.
    family = min(answer[0] for answer in answers)
    targets = []
    for ip in sorted({str(answer[4][0]) for answer in answers if answer[0] == family}):
        place = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        address = Address(url=parts._replace(netloc=place).geturl(), access=access, server_name=f"{host}:{port}")
        targets.append(Target(name=place, address=address, labels=one.labels))
    return targets
