"""What the exporter and its test may do in a cluster: nothing that it does not need."""

from pathlib import Path

import pytest

from helm.chart import CI, for_each_case, render
from helm.pods import pods
from helm.restricted import containers, violations
from helm.sidecar import SIDECARS, sidecar

_RBAC = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
_OF_THE_CLUSTER = {"CustomResourceDefinition", "Namespace", "PodSecurityPolicy", "MutatingWebhookConfiguration"}


@for_each_case
def test_the_restricted_standard_holds_for_every_pod(values: Path) -> None:
    for where, pod in pods(render(values)).items():
        assert violations(pod) == [], where


@pytest.mark.parametrize("values", SIDECARS, ids=lambda path: path.name)
def test_the_restricted_standard_holds_for_the_sidecar_in_a_pod_that_says_nothing_of_it(values: Path) -> None:
    snippet = sidecar(render(values))
    alone = {"spec": {"initContainers": [], "containers": [snippet.container], "volumes": snippet.volumes}}
    assert violations(alone) == []
    assert snippet.container["securityContext"]["readOnlyRootFilesystem"] is True


@for_each_case
def test_a_container_cannot_write_to_its_own_files(values: Path) -> None:
    for where, pod in pods(render(values)).items():
        for one in containers(pod["spec"]):
            assert one["securityContext"].get("readOnlyRootFilesystem") is True, f"{where}: {one['name']}"


@for_each_case
def test_no_pod_holds_a_token_of_the_cluster(values: Path) -> None:
    rendered = render(values)
    for where, pod in pods(rendered).items():
        assert pod["spec"].get("automountServiceAccountToken") is False, where
    for one in rendered.of("ServiceAccount"):
        assert one.get("automountServiceAccountToken") is False


@for_each_case
def test_nothing_is_asked_of_the_cluster_but_a_namespace(values: Path) -> None:
    kinds = {one["kind"] for one in render(values).objects}
    assert not kinds & (_RBAC | _OF_THE_CLUSTER), kinds


@for_each_case
def test_every_image_has_a_tag_or_a_digest(values: Path) -> None:
    rendered = render(values)
    images = [one for pod in pods(rendered).values() for one in containers(pod["spec"])]
    images += [sidecar(rendered).container] if values in SIDECARS else []
    for one in images:
        name, _, digest = one["image"].partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        assert digest.startswith("sha256:") or tag not in {"", "latest"}, one["image"]


@for_each_case
def test_no_secret_is_rendered(values: Path) -> None:
    """Secrets belong to who runs the cluster: the chart refers to them."""
    assert render(values).of("Secret") == []


@for_each_case
def test_secrets_are_mounted_to_be_read(values: Path) -> None:
    for where, pod in pods(render(values)).items():
        secret = {one["name"] for one in pod["spec"].get("volumes", ()) if "secret" in one or "projected" in one}
        for container in containers(pod["spec"]):
            for mount in container.get("volumeMounts", ()):
                assert mount["name"] not in secret or mount.get("readOnly") is True, f"{where}: {mount}"


def test_a_user_that_is_not_root_can_read_the_secrets() -> None:
    """Files of a Secret are root's: another user reads them by a group that the pod must have, or as anybody."""
    read = 0
    for path in CI:
        rendered = render(path)
        whole = [pod["spec"] for pod in pods(rendered).values()]
        whole += [{"volumes": sidecar(rendered).volumes}] if path in SIDECARS else []
        for spec in whole:
            for volume in spec.get("volumes", ()):
                if "secret" in volume and not spec.get("securityContext", {}).get("fsGroup"):
                    assert volume["secret"].get("defaultMode", 0o644) & 0o004, f"{path.name}: {volume}"
                    read += 1
    assert read


def test_annotations_of_the_user_go_before_prometheus_and_not_before_the_checksum() -> None:
    given = {"prometheus.io/scrape": "false", "checksum/config": "x", "example.com/note": "yes"}
    values = {"targets": [{"service": "vllm", "namespace": "chat"}], "scrapeAnnotations": True}
    found, plain = (
        render(values, {"podAnnotations": one}).only("Deployment")["spec"]["template"]["metadata"]["annotations"]
        for one in (given, {})
    )
    assert found == plain | given | {"checksum/config": plain["checksum/config"]}


def test_there_are_pods_and_a_test_among_them() -> None:
    kinds = {name.partition("/")[0] for path in CI for name in pods(render(path))}
    assert {"Deployment", "Pod"} <= kinds or {"Deployment", "Job"} <= kinds, kinds
