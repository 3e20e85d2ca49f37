"""The exporter takes every configuration that the chart renders, and understands by it what the values say."""

from pathlib import Path
from typing import Any

import pytest

from helm.chart import CI, Object, Rendered, Values, for_each_case, is_hook, merged, render
from helm.container import as_process
from helm.kubernetes import VERSIONS, versions
from helm.sidecar import SIDECARS, sidecar
from prefixwatch.config import Config, Duration, load

CENTRAL = [path for path in CI if path not in SIDECARS]


def _configmaps(rendered: Rendered) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in rendered.of("ConfigMap") if not is_hook(one)}


def effective(rendered: Rendered, folder: Path) -> Config:
    """Return what the exporter would do, read from its arguments, environment and files."""
    if deployments := rendered.of("Deployment"):
        spec = deployments[0]["spec"]["template"]["spec"]
        (container,), volumes = spec["containers"], spec["volumes"]
    else:
        found = sidecar(rendered)
        container, volumes = found.container, found.volumes
    process = as_process(container, volumes, _configmaps(rendered), folder)
    command, *rest = process.arguments
    assert command == "run"
    assert rest in ([], ["--config", *rest[1:2]]), rest
    return load(Path(rest[1]) if rest else None, process.env, {})


@for_each_case
def test_it_is_accepted(values: Path, tmp_path: Path) -> None:
    for version in (versions(values)[0], VERSIONS[-1]):
        config = effective(render(values, kube_version=version), tmp_path)
        assert config.targets or config.targets_file


@for_each_case
def test_it_listens_where_the_container_says(values: Path, tmp_path: Path) -> None:
    rendered = render(values)
    deployed = [one["spec"]["template"]["spec"]["containers"][0] for one in rendered.of("Deployment")]
    (container,) = deployed or [sidecar(rendered).container]
    assert effective(rendered, tmp_path).address == (None, container["ports"][0]["containerPort"])


@for_each_case
def test_settings_arrive_as_they_were_written(values: Path, tmp_path: Path) -> None:
    """Helm's numbers are floats: a large one must not arrive as 3.4e+07."""
    config = effective(render(values), tmp_path)
    for key, value in merged(values).get("config", {}).items():
        _assert_is(getattr(config, key), value)


def _assert_is(found: Any, written: Any) -> None:
    if isinstance(written, dict):
        for key, value in written.items():
            _assert_is(getattr(found, key), value)
    elif isinstance(written, list):
        assert len(found) == len(written)
        for one, other in zip(found, written, strict=True):
            _assert_is(one, other)
    else:
        assert found == (Duration.parse(written) if isinstance(found, Duration) else written)


@pytest.mark.parametrize("values", CENTRAL, ids=lambda path: path.name)
def test_every_target_has_the_labels_of_its_engine(values: Path, tmp_path: Path) -> None:
    given = merged(values)
    config = effective(render(values), tmp_path)
    assert len(config.targets) == len(given.get("targets", ()))
    for target, written in zip(config.targets, given.get("targets", ()), strict=True):
        cluster = {"cluster": given["cluster"]} if given.get("cluster") else {}
        assert target.labels == {"namespace": written["namespace"], **cluster, **written.get("labels", {})}
        assert target.name == written.get("name")
        if "service" in written:
            scheme, port, path = (
                written.get("scheme", "http"),
                written.get("port", 8000),
                written.get("path", "/metrics"),
            )
            assert target.dns == f"{scheme}://{written['service']}.{written['namespace']}.svc:{port}{path}"
        else:
            assert (target.url, target.dns) == (written.get("url"), written.get("dns"))


@pytest.mark.parametrize("values", CENTRAL, ids=lambda path: path.name)
def test_files_of_credentials_are_where_a_secret_is_mounted(values: Path, tmp_path: Path) -> None:
    rendered = render(values)
    spec = rendered.only("Deployment")["spec"]["template"]["spec"]
    mounts = [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]]
    config = effective(rendered, tmp_path)
    accesses = [config.access, *(target.access for target in config.targets)]
    files = [getattr(one, key) for one in accesses for key in one.__struct_fields__] + [config.web_config_file]
    for file in filter(None, files):
        assert any(file.startswith(f"{mount}/") for mount in mounts), f"{file} is in none of {mounts}"


SECRETS: Values = {
    "targets": [{"service": "vllm", "namespace": "chat", "access": {"bearerToken": {"secretName": "a", "key": "b"}}}],
    "access": {
        "bearerToken": {"secretName": "token"}, "ca": {"secretName": "ca"}, "clientCertificate": {"secretName": "client"},
    },
    "webConfig": {"secretName": "web"},
}  # fmt: skip


def test_credentials_are_those_that_were_named(tmp_path: Path) -> None:
    config = effective(render(SECRETS), tmp_path)
    named = {
        config.access.bearer_token_file: "token/token", config.access.ca_file: "ca/ca.crt",
        config.access.cert_file: "client/tls.crt", config.access.key_file: "client/tls.key",
        config.targets[0].access.bearer_token_file: "a/b", config.web_config_file: "web/web.yaml",
    }  # fmt: skip
    for file, end in named.items():
        assert file and file.endswith(end), (file, end)


@pytest.mark.parametrize("values", SIDECARS, ids=lambda path: path.name)
def test_a_sidecar_watches_the_engine_of_its_pod_by_the_pods_address(values: Path, tmp_path: Path) -> None:
    for version in versions(values):
        config = effective(render(values, kube_version=version), tmp_path)
        (target,) = config.targets
        assert target.url and not target.labels
        port = merged(values).get("sidecar", {}).get("target", {}).get("port", 8000)
        assert config.name_of(target) == f"127.0.0.1:{port}"
        assert config.poll_interval == Duration(1)
