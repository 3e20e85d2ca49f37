"""What an installed exporter is made of may be used: each licence is known, allowed and listed."""

from email.message import Message

import pytest

import audit
import licences


def test_every_package_has_a_licence_that_is_allowed_and_is_listed():
    found = licences.runtime()
    assert {
        "aiohttp",
        "bcrypt",
        "msgspec",
        "numpy",
        "prometheus-client",
        "pyyaml",
        "pyzmq",
        "rich",
        "yarl",
    } <= found.keys()
    assert {name: licence for name, licence in found.items() if not licences.is_allowed(licence)} == {}
    assert found.keys() <= licences.listed().keys(), "run: make licences"
    assert all(map(licences.is_allowed, licences.listed().values()))


@pytest.mark.parametrize(
    ("document", "code", "says"),
    [
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}]}, 0, "1 packages audited: no known vulnerability"),
        ({"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]}, 1, "a 1: CVE-1, fixed in 2"),
        ({"dependencies": [{"name": "a", "skip_reason": "not found"}]}, 3, "not audited: a: not found"),
        (None, 3, "not audited"),
    ],
)  # fmt: skip
def test_an_audit_that_could_not_be_made_is_none_that_was_passed(document: dict | None, code: int, says: str):
    lines, found = audit.verdict(document)
    assert (found, lines[-1].startswith(says)) == (code, True)


@pytest.mark.parametrize(
    ("expression", "is_fine"),
    [
        ("MIT", True), ("Apache-2.0 AND MIT", True), ("Apache-2.0 OR GPL-3.0-only", True), ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only", False), ("unknown", False), ("", False), ("(MIT OR Apache-2.0)", True), ("MITnot", False),
    ],
)  # fmt: skip
def test_what_is_allowed(expression: str, is_fine: bool):
    assert licences.is_allowed(expression) is is_fine


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": "MIT", "License": "other"}, "MIT"),
        ({"Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"Classifier": "License :: OSI Approved", "License": "BSD"}, "BSD-3-Clause"),
        ({"License": "Commercial\nAll rights reserved"}, "Commercial"),
        ({}, "unknown"),
    ],
)
def test_a_licence_is_read_however_it_is_said(fields: dict[str, str], licence: str):
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value
    assert licences.licence_of(metadata) == licence
