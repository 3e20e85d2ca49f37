"""What `helm test` says, from a real exporter and a real Prometheus."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from edge.certificates import Authority
from edge.commands import Done, ended, exporter
from edge.waiting import until
from helm.chart import CHART, Rendered, render
from prefixwatch.demo.server import serve
from prometheus.server import free_port, prometheus

PROGRAM = CHART / "files" / "ask.py"
CENTRAL = {
    "targets": [{"service": "vllm", "namespace": "chat"}],
    "serviceMonitor": {"enabled": True},
    "rules": {"prometheusRule": {"enabled": True}},
    "test": {"prometheusUrl": "http://prometheus:9090"},
}
SIDECAR = {"mode": "sidecar", "podMonitor": {"enabled": True}, "test": {"prometheusUrl": "http://prometheus:9090"}}
WELL = ("--timeout=60",)
AT_ONCE = ("--timeout=0",)


def arguments(rendered: Rendered) -> list[str]:
    """Return what the chart's test asks for."""
    (pod,) = rendered.of("Pod")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python"]
    program, *rest = container["args"]
    (mount,) = container["volumeMounts"]
    (script,) = (one for one in rendered.of("ConfigMap") if one["metadata"]["name"] == pod["metadata"]["name"])
    assert program == f"{mount['mountPath']}/{next(iter(script['data']))}"
    assert script["data"]["ask.py"].rstrip() == PROGRAM.read_text().rstrip()
    return rest


async def asked(*arguments: str) -> Done:
    return await ended(
        await asyncio.create_subprocess_exec(
            sys.executable, "-I", PROGRAM, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
    )


def scrape(name: str, address: str, **settings: Any) -> Mapping[str, Any]:
    """Return a job as it comes of the ServiceMonitor, with the labels that discovery gives."""
    return {
        "job_name": name, "honor_labels": True,
        "static_configs": [{"targets": [address], "labels": {"namespace": "monitoring"}}], **settings,
    }  # fmt: skip


def targets(folder: Path, *entries: Mapping[str, Any]) -> Path:
    file = folder / "targets.yaml"
    file.write_text(yaml.safe_dump(list(entries)))
    return file


def rule_file(rendered: Rendered, folder: Path) -> Path:
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(rendered.only("PrometheusRule")["spec"]))
    return file


async def test_where_all_is_well_it_says_so(tmp_path: Path) -> None:
    rendered = render(CENTRAL)
    async with await serve("healthy") as engine:
        file = targets(tmp_path, {"url": engine.url, "labels": {"namespace": "chat"}})
        async with exporter("--targets-file", file) as running:
            job = scrape("pw-prefixwatch", running.url.removeprefix("http://"))
            async with prometheus(tmp_path, scrapes=[job], rules=[rule_file(rendered, tmp_path)]) as server:
                done = await asked(
                    *arguments(rendered), f"--exporter={running.url}", f"--prometheus={server.url}", *WELL
                )
    assert done.out.splitlines() == [
        f"ok    the exporter answers at {running.url}, and has polled every target once",
        "ok    no target is a DNS name",
        "ok    1 of 1 targets answer",
        "ok    Prometheus scrapes 1 of 1 exporters of pw-prefixwatch",
        "ok    the label `namespace` is the engines'",
        "ok    Prometheus evaluates the 8 groups of rules",
    ]
    assert (done.code, done.err) == (0, "")


async def test_a_monitor_and_rules_that_nobody_adopted_are_named_with_what_to_do(tmp_path: Path) -> None:
    async with prometheus(tmp_path) as server:
        central = await asked(*arguments(render(CENTRAL)), "--exporter=", f"--prometheus={server.url}", *AT_ONCE)
        sidecar = await asked(*arguments(render(SIDECAR)), f"--prometheus={server.url}", *AT_ONCE)
        bare = await asked(f"--prometheus={server.url}", *AT_ONCE)
    monitor, rules = central.out.splitlines()
    assert monitor.startswith(
        "FAULT the ServiceMonitor exists but Prometheus has not adopted it: serviceMonitor.additionalLabels"
    )
    assert rules.startswith("FAULT the PrometheusRule exists but Prometheus does not load it (prefixwatch.alerts.")
    assert "rules.prometheusRule.additionalLabels must match the operator's ruleSelector" in rules
    assert "podMonitor.additionalLabels" in sidecar.out and "no pod has a port named `prefixwatch`" in sidecar.out
    assert bare.out.startswith("FAULT Prometheus scrapes no prefixwatch: set serviceMonitor.enabled")
    assert {central.code, sidecar.code, bare.code} == {1}


async def test_an_exporter_that_cannot_be_scraped_is_said_in_prometheus_words(tmp_path: Path) -> None:
    job = scrape("pw-prefixwatch", f"127.0.0.1:{free_port()}")
    async with prometheus(tmp_path, scrapes=[job]) as server:
        await until(lambda: server.vector("up"))
        done = await asked(
            f"--prometheus={server.url}", "--monitor=ServiceMonitor", "--job=pw-prefixwatch",
            '--selector=job="pw-prefixwatch"', *AT_ONCE,
        )  # fmt: skip
    assert done.code == 1
    assert "FAULT Prometheus knows pw-prefixwatch and cannot scrape it: " in done.out
    assert "connection refused" in done.out


async def test_labels_that_prometheus_renames_are_seen(tmp_path: Path) -> None:
    file = targets(tmp_path, {"url": f"127.0.0.1:{free_port()}", "labels": {"namespace": "chat"}})
    async with exporter("--targets-file", file) as running:
        job = scrape("pw-prefixwatch", running.url.removeprefix("http://"), honor_labels=False)
        async with prometheus(tmp_path, scrapes=[job]) as server:
            await until(lambda: server.vector("prefixwatch_up"))
            done = await asked(f"--exporter={running.url}", f"--prometheus={server.url}", *AT_ONCE)
    assert "FAULT Prometheus renames the engines' `namespace` to `exported_namespace`" in done.out
    assert "FAULT none of 1 targets answers: 127.0.0.1:" in done.out
    assert done.code == 1


async def test_a_name_without_an_address_is_named(tmp_path: Path) -> None:
    """The usual silent fault: a Service that is not there, or whose selector matches nothing."""
    file = targets(tmp_path, {"dns": "http://nothing.invalid:8000/metrics"})
    async with exporter("--targets-file", file) as running:
        done = await asked(f"--exporter={running.url}", "--timeout=8")
    lines = done.out.splitlines()
    assert lines[0].startswith("note  Prometheus is not asked: set test.prometheusUrl")
    assert lines[1].startswith("ok    the exporter answers")
    assert lines[2].startswith("FAULT no address behind nothing.invalid:8000: is there a Service of that name")
    assert lines[3].startswith("FAULT the exporter has no target")
    assert done.code == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(("--exporter=http://127.0.0.1:{port}",), "http://127.0.0.1:{port}/healthz does not answer", id="no exporter"),
        pytest.param(("--prometheus=http://127.0.0.1:{port}",), "/api/v1/query?query=prefixwatch_build_info does not", id="no Prometheus"),
        pytest.param((), "FAULT nothing to ask: in mode sidecar the exporters are in your pods", id="nobody"),
    ],
)  # fmt: skip
async def test_whom_it_cannot_ask_it_names(given: tuple[str, ...], said: str) -> None:
    port = free_port()
    done = await asked(*(one.format(port=port) for one in given), *AT_ONCE)
    assert said.format(port=port) in done.out
    assert (done.code, done.err) == (1, "")


@pytest.mark.parametrize(
    ("secret", "header"),
    [
        pytest.param({"token": "t0k\n"}, "Bearer t0k", id="token"),
        pytest.param({"username": "u", "password": "p"}, "Basic dTpw", id="password"),
    ],
)
async def test_it_has_the_credentials_of_a_secret(tmp_path: Path, secret: dict[str, str], header: str) -> None:
    for name, text in secret.items():
        (tmp_path / name).write_text(text)
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{"targets": []}'[:-1])
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        done = await asked(f"--exporter=http://127.0.0.1:{port}", f"--credentials={tmp_path}", *AT_ONCE)
    assert seen and all(f"Authorization: {header}".encode() in one for one in seen), done


@pytest.mark.parametrize(
    ("signer", "said"),
    [
        pytest.param("own", ", and has polled every target once\n", id="its authority"),
        pytest.param("other", "does not answer: [SSL: CERTIFICATE_VERIFY_FAILED]", id="another authority"),
        pytest.param(None, "; its certificate is not checked: no ca.crt in the Secret of test.", id="none"),
    ],
)
async def test_it_holds_the_certificate_against_the_authority_of_a_secret(
    tmp_path: Path, signer: str | None, said: str
) -> None:
    authorities = {name: Authority(tmp_path / name, name) for name in ("own", "other")}
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "token").write_text("t0k")
    if signer:
        (secret / "ca.crt").write_bytes(authorities[signer].ca_file.read_bytes())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=authorities["own"].server()) as server:
        port = server.sockets[0].getsockname()[1]
        done = await asked(f"--exporter=https://127.0.0.1:{port}", f"--credentials={secret}", *AT_ONCE)
    assert said in done.out, done
    assert done.err == ""


async def test_an_exporter_that_asks_for_credentials_is_named_with_where_they_go(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret")
    web = tmp_path / "web.yaml"
    web.write_text(f"bearer_token_file: {tmp_path / 'password'}\n")
    file = targets(tmp_path, {"url": f"127.0.0.1:{free_port()}"})
    async with exporter("--targets-file", file, "--web-config-file", web) as running:
        done = await asked(f"--exporter={running.url}", *AT_ONCE)
    assert "answers HTTP 401" in done.out
    assert "name a Secret with credentials in test.credentialsSecretName" in done.out
    assert done.code == 1
