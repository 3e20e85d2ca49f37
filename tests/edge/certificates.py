"""A certificate authority for a test, made with openssl."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates into `folder`; its own is `ca_file`."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={self.name}", "-addext", "keyUsage=critical,keyCertSign",
            "-keyout", "ca.key", "-out", "ca.pem",
        )  # fmt: skip

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str, *, alternative: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """Return the files of a new certificate and its key."""
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\nauthorityKeyIdentifier=keyid\n")
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-days", "2", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-extfile", f"{name}.ext", "-out", f"{name}.pem",
        )  # fmt: skip
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def server(self, name: str = "server", *, wants_client: bool = False, **options: str) -> ssl.SSLContext:
        """Return what a server with a certificate of this authority needs."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca_file)
        context.load_cert_chain(*self.certificate(name, **options))
        context.verify_mode = ssl.CERT_REQUIRED if wants_client else ssl.CERT_NONE
        return context

    def _openssl(self, *arguments: str) -> None:
        openssl(self.folder, *arguments)


def encrypt(key: Path) -> None:
    """Put a password on a key."""
    openssl(key.parent, "pkcs8", "-topk8", "-in", key.name, "-out", "encrypted.key", "-passout", "pass:s3cret")
    (key.parent / "encrypted.key").replace(key)


def openssl(folder: Path, *arguments: str) -> None:
    """Run a command of openssl in a folder."""
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
