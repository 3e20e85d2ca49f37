"""Every alert has a page and every page an alert; what can be pasted from a page works."""

import re
from pathlib import Path

import promql_parser as promql
import pytest

from alerts.rulefiles import ALERTS, alerts, records
from alerts.test_linter import COUNTERS, CREATED, GAUGES, nodes

PAGES = sorted((ALERTS / "runbooks").glob("*.md"))
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "How to see that it helped"]
COMMANDS = {"check", "compare", "record", "replay", "run"}
FLAGS = {
    "--gpu-memory-utilization", "--kv-cache-dtype", "--max-model-len", "--max-num-seqs", "--enable-prefix-caching",
    "--no-enable-prefix-caching", "--kv-cache-metrics", "--kv-cache-metrics-sample", "--kv-events-config", "--block-size",
    "--kv-transfer-config", "--tensor-parallel-size", "--max-num-batched-tokens", "--for", "--window", "--at",
}  # fmt: skip
"""vLLM's and prefixwatch's own that a page may name."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def queries(page: Path) -> list[str]:
    """Return each expression of a page: one a line, to be pasted one at a time."""
    lines = [line.strip() for block in blocks(page, "promql") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert {page.stem for page in PAGES} == {alert["alert"] for alert in alerts()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_its_sections_and_says_what_cannot_be_known(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"(?m)^## (.*)$", text) == SECTIONS
    assert re.search(r"cannot (be told|be known|tell|know|say|see)", text), "what counters do not say"
    assert "prefixwatch check" in text
    assert queries(page), "something to paste"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_queries_parse_and_use_names_that_exist(page: Path) -> None:
    known = records().keys() | COUNTERS | GAUGES | CREATED | {"up"}
    for query in queries(page):
        promql.parse(query)
        for node, _ in nodes(query, promql.VectorSelector):
            assert node.name in known or re.fullmatch(r"vllm:\w+", node.name), f"{node.name} in {query}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_flags_and_links_exist(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"prefixwatch ([a-z]+) ", text)) <= COMMANDS | {
        "gives",
        "shows",
        "sees",
        "itself",
        "alone",
        "with",
        "watches",
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", text)) <= FLAGS
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_read_at_night(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= 120
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert max(len(line) for line in prose.splitlines()) <= 140
