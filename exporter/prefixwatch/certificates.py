"""A certificate and its key, of a server or of a client."""

import os
import ssl
from pathlib import Path

from prefixwatch.settings import content_of


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Return the context of a client that trusts a file's certificates, None: the system's. Raises ValueError like below."""
    if ca_file:
        _refuse_unreadable(ca_file)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"{ca_file}: not certificates: {words_of(error)}") from None


def load_certificate(context: ssl.SSLContext, cert_file: str, key_file: str | None) -> None:
    """Load a certificate and its key, None where both are in one file. Raises ValueError: the file, and why not."""
    files = [file for file in (cert_file, key_file) if file]
    for file in files:
        _refuse_unreadable(file)

    def no_password() -> bytes:  # else OpenSSL asks at the terminal, and waits
        raise ValueError(f"{files[-1]}: is encrypted, and nobody is there to be asked: use a key without a password")

    try:
        context.load_cert_chain(cert_file, key_file, password=no_password)
    except OSError as error:
        raise ValueError(f"{', '.join(files)}: not a certificate and its key: {words_of(error)}") from None


def _refuse_unreadable(file: str) -> None:
    try:
        content_of(Path(file), most=1)
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None


def words_of(error: Exception) -> str:
    """Return what OpenSSL, or the system, says of a file."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "broken").replace("_", " ").lower()
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "broken"
