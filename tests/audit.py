"""Ask for known vulnerabilities of the runtime dependencies that are installed, with pip-audit.

Exit status 0: none; 1: some; 3: it could not be found out, which pip-audit itself calls a success.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import licences


def main() -> int:
    """Audit, and say what was found."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.writelines(f"{name}=={version(name)}\n" for name in licences.runtime())
        pinned.flush()
        arguments = (
            "--requirement",
            pinned.name,
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "--progress-spinner",
            "off",
        )
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", *arguments], capture_output=True, text=True, check=False
        )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = None
        print(*done.stderr.splitlines()[-1:], file=sys.stderr)
    lines, code = verdict(document)
    print(*lines, sep="\n")
    return code


def verdict(document: dict[str, Any] | None) -> tuple[list[str], int]:
    """Return what to say of pip-audit's document (None: it gave none), and the exit status."""
    if document is None:
        return ["not audited: pip-audit gave no answer; it needs to reach pypi.org"], 3
    packages = document["dependencies"]
    bad = [
        f"{one['name']} {one['version']}: {vuln['id']}, fixed in {', '.join(vuln['fix_versions']) or 'no release'}"
        for one in packages
        for vuln in one.get("vulns", ())
    ]
    if bad:
        return bad, 1
    skipped = [f"not audited: {one['name']}: {one['skip_reason']}" for one in packages if "skip_reason" in one]
    return (skipped, 3) if skipped else ([f"{len(packages)} packages audited: no known vulnerability"], 0)


if __name__ == "__main__":
    sys.exit(main())
