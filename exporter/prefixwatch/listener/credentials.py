"""Basic and bearer authentication: who a request comes from, at a bounded price.

bcrypt is slow on purpose. It runs in one thread, so that polling goes on; what it said is kept, so
that it runs once for a password and not for each scrape; and after a wrong password the thread
rests, so that guessing takes a quarter of one core and no more.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import bcrypt

from prefixwatch.listener.webfile import Terms

KEPT = 256
"""How many right, and how many wrong pairs of user and password are remembered."""

WAITING = 16
"""How many passwords may wait for their check; more are turned away."""

REST = 3.0
"""How long the thread rests after a wrong password, in times of what the check took."""

_MAX_PASSWORD = 72  # bcrypt reads no further


class Verdict(Enum):
    """What becomes of a request."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    BUSY = "busy"


class Doorkeeper:
    """Judge `Authorization` headers. What it remembers are keyed digests, never passwords."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._checking: dict[bytes, asyncio.Task[bool]] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._turn = asyncio.Lock()

    async def judge(self, header: str | None, terms: Terms) -> Verdict:
        """Return whether a request with this header is answered on these terms."""
        scheme, _, given = (header or "").strip().partition(" ")
        given = given.strip()
        if scheme.lower() == "bearer" and terms.token is not None:
            # What is not UTF-8 in a header comes as surrogates.
            digest = self._digest(given.encode("utf-8", "surrogateescape"))
            is_right = hmac.compare_digest(digest, self._digest(terms.token.encode()))
            return Verdict.ADMITTED if is_right else Verdict.REFUSED
        if scheme.lower() == "basic" and terms.config.basic_auth_users:
            pair = _decoded(given)
            return Verdict.REFUSED if pair is None else await self._judge(*pair, terms.config.basic_auth_users)
        return Verdict.REFUSED

    def close(self) -> None:
        """End the thread as soon as it has nothing to do; nobody waits for it."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _judge(self, user: str, password: bytes, users: Mapping[str, str]) -> Verdict:
        # A user that is not known costs what one costs that is, or names could be guessed by the time it takes.
        is_known = user in users
        hashed = users[user] if is_known else next(iter(users.values()))
        key = self._digest(user.encode("utf-8", "surrogateescape"), hashed.encode(), password, bytes([is_known]))
        if key in self._right:
            self._right.move_to_end(key)
            return Verdict.ADMITTED
        if key in self._wrong:
            self._wrong.move_to_end(key)
            return Verdict.REFUSED
        task = self._checking.get(key)
        if task is None:
            if len(self._checking) >= WAITING:
                return Verdict.BUSY
            task = asyncio.create_task(self._check(key, password, hashed, is_known=is_known))
            self._checking[key] = task
            task.add_done_callback(lambda _: self._checking.pop(key, None))
        return Verdict.ADMITTED if await asyncio.shield(task) else Verdict.REFUSED

    async def _check(self, key: bytes, password: bytes, hashed: str, *, is_known: bool) -> bool:
        await self._turn.acquire()
        rest = 0.0
        try:
            started = time.monotonic()
            is_right = await asyncio.get_running_loop().run_in_executor(self._executor(), _matches, password, hashed)
            is_right &= is_known
            rest = 0.0 if is_right else REST * (time.monotonic() - started)
        finally:
            asyncio.get_running_loop().call_later(rest, self._turn.release)
        kept = self._right if is_right else self._wrong
        kept[key] = None
        if len(kept) > KEPT:
            kept.popitem(last=False)
        return is_right

    def _executor(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="bcrypt")
        return self._thread

    def _digest(self, *parts: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key)
        for part in parts:
            digest.update(len(part).to_bytes(8) + part)
        return digest.digest()


def challenges(terms: Terms) -> list[str]:
    """Return what to ask for, one header each."""
    kinds = [("Basic", bool(terms.config.basic_auth_users)), ("Bearer", terms.token is not None)]
    return [f'{kind} realm="prefixwatch"' for kind, is_wanted in kinds if is_wanted]


def _matches(password: bytes, hashed: str) -> bool:
    try:
        return bcrypt.checkpw(password[:_MAX_PASSWORD], hashed.encode())
    except ValueError:  # a hash of the right form that bcrypt cannot read, or a password that no hash has
        return False


def _decoded(text: str) -> tuple[str, bytes] | None:
    try:
        user, colon, password = base64.b64decode(text, validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user.decode("utf-8", "surrogateescape"), password) if colon else None
