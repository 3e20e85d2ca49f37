"""What `helm test` runs: asks the exporter and Prometheus, and says what is wrong and what to do.

Needs nothing but Python. Each finding is a line; the exit status is 1 where one of them is a fault.
"""

import argparse
import base64
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 10
PAUSE_SECONDS = 2.0


class Fault(Exception):
    """What is wrong, and what to do about it."""


class Server:
    """Something that answers HTTP.

    `is_own`: the chart's exporter, whose certificate is held against the `ca.crt` among its credentials, or not looked
    at where there is none.
    """

    def __init__(self, url: str, *, credentials: Path | None = None, is_own: bool = False) -> None:
        self.url = url.rstrip("/")
        ca = credentials / "ca.crt" if credentials and (credentials / "ca.crt").exists() else None
        context = ssl.create_default_context(cafile=ca)
        self.is_unverified = is_own and ca is None and url.startswith("https:")
        if self.is_unverified:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        # A cluster's own addresses are not asked for through a proxy.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        self._headers = authorization(credentials) if credentials else {}

    def get(self, path: str) -> str:
        """Return the body. Raises Fault with what went wrong."""
        request = urllib.request.Request(self.url + path, headers=self._headers)  # noqa: S310  the chart's own URL
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as response:
                text: str = response.read().decode()
                return text
        except urllib.error.HTTPError as error:
            words = error.read().decode(errors="replace")[:200].strip()
            hint = ": name a Secret with credentials in test.credentialsSecretName" if error.code == 401 else ""
            raise Fault(f"{self.url}{path} answers HTTP {error.code} ({words}){hint}") from None
        except OSError as error:
            raise Fault(f"{self.url}{path} does not answer: {getattr(error, 'reason', error)}") from None

    def json(self, path: str) -> Any:
        """Return what the body's JSON holds."""
        try:
            return json.loads(self.get(path))
        except ValueError:
            raise Fault(f"{self.url}{path} answers something that is not JSON: is this the right address?") from None

    def query(self, expression: str) -> list[Any]:
        """Return what Prometheus's instant query gives."""
        answer = self.json("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        result: list[Any] = answer["data"]["result"]
        return result


def authorization(folder: Path) -> dict[str, str]:
    """Return the header for what a mounted Secret holds: `token`, or `username` and `password`, or neither."""
    if (folder / "token").exists():
        return {"Authorization": f"Bearer {(folder / 'token').read_text().strip()}"}
    if not (folder / "username").exists():
        return {}
    pair = ":".join((folder / name).read_text().strip() for name in ("username", "password"))
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def exporter_lives(exporter: Server) -> str:
    """Ask for the process and for its first round of polling."""
    exporter.get("/healthz")
    exporter.get("/readyz")
    unverified = "; its certificate is not checked: no ca.crt in the Secret of test.credentialsSecretName"
    return (
        f"the exporter answers at {exporter.url}, and has polled every target once"
        f"{unverified if exporter.is_unverified else ''}"
    )


def names_have_addresses(exporter: Server) -> str:
    """Ask for DNS names behind which there is nothing: the usual silent fault."""
    lines = [line for line in exporter.get("/metrics").splitlines() if line.startswith("prefixwatch_dns_addresses{")]
    empty = [line.partition('dns="')[2].partition('"')[0] for line in lines if float(line.rpartition(" ")[2]) == 0]
    if empty:
        raise Fault(
            f"no address behind {', '.join(empty)}: is there a Service of that name with `clusterIP: None`, and does its"
            " selector match the labels of the vLLM pods? (kubectl get endpointslices -n NAMESPACE)"
        )
    return f"{len(lines)} DNS names lead to addresses" if lines else "no target is a DNS name"


def engines_answer(exporter: Server) -> str:
    """Ask for the targets, and whether one of them at least is a vLLM that answers."""
    targets = exporter.json("/api/v1/status")["targets"]
    if not targets:
        raise Fault("the exporter has no target: see `targets` in the values, and the exporter's log")
    down = [f"{one['target']} ({one.get('error') or 'not polled yet'})" for one in targets if not one["up"]]
    if len(down) == len(targets):
        raise Fault(
            f"none of {len(targets)} targets answers: {'; '.join(down[:3])}. Check the port, a NetworkPolicy before"
            " the vLLM pods, and that vLLM does not listen on 127.0.0.1 alone; a model that still loads does not answer either"
        )
    rest = f"; not yet: {'; '.join(down[:3])}" if down else ""
    return f"{len(targets) - len(down)} of {len(targets)} targets answer{rest}"


def prometheus_scrapes(prometheus: Server, *, job: str, selector: str, kind: str) -> str:
    """Ask whether Prometheus has adopted the monitor, and gets an answer from what that selects."""
    found = prometheus.query(f"up{{{selector}}}" if job else "prefixwatch_build_info")
    if not found:
        raise Fault(not_adopted(kind))
    good = [one for one in found if float(one["value"][1]) == 1]
    if not good:
        raise Fault(f"Prometheus knows {job} and cannot scrape it: {scrape_error(prometheus, job)}")
    return f"Prometheus scrapes {len(good)} of {len(found)} exporters of {job or 'prefixwatch'}"


def not_adopted(kind: str) -> str:
    """Return what to do where Prometheus knows no such job."""
    if not kind:
        return (
            "Prometheus scrapes no prefixwatch: set serviceMonitor.enabled (podMonitor.enabled in mode sidecar), or"
            " scrapeAnnotations for a Prometheus without the operator"
        )
    value = kind[0].lower() + kind[1:]
    fault = (
        f"the {kind} exists but Prometheus has not adopted it: {value}.additionalLabels must match the {value}Selector of"
        f" the operator's Prometheus, and its {value}NamespaceSelector the namespace that it is in"
    )
    if kind == "PodMonitor":
        fault += (
            "; or no pod has a port named `prefixwatch`: put the sidecar into your vLLM pods, and see podMonitor.selector"
            " and namespaceSelector"
        )
    return fault


def scrape_error(prometheus: Server, job: str) -> str:
    """Return why the scrapes of a job fail, in Prometheus's words."""
    active = prometheus.json("/api/v1/targets?state=active")["data"]["activeTargets"]
    errors = sorted({one["lastError"] for one in active if one["labels"].get("job") == job and one["lastError"]})
    return "; ".join(errors) or "see its page of targets"


def labels_are_the_engines(prometheus: Server) -> str:
    """Ask whether Prometheus has renamed the labels that say whose engine it is."""
    if prometheus.query('prefixwatch_up{exported_namespace!=""}'):
        raise Fault(
            "Prometheus renames the engines' `namespace` to `exported_namespace`: it does not honor labels. With the"
            " operator, overrideHonorLabels must be off; else set honor_labels in the scrape job"
        )
    return "the label `namespace` is the engines'"


def rules_are_loaded(prometheus: Server, groups: list[str]) -> str:
    """Ask whether Prometheus evaluates the rules."""
    loaded = {group["name"]: group for group in prometheus.json("/api/v1/rules")["data"]["groups"]}
    missing = [name for name in groups if name not in loaded]
    if missing:
        raise Fault(
            f"the PrometheusRule exists but Prometheus does not load it ({', '.join(missing)}):"
            " rules.prometheusRule.additionalLabels must match the operator's ruleSelector, and its ruleNamespaceSelector"
            " the namespace that it is in"
        )
    ill = [
        f"{rule['name']}: {rule.get('lastError', '')}"
        for name in groups
        for rule in loaded[name]["rules"]
        if rule["health"] == "err"
    ]
    if ill:
        raise Fault(f"Prometheus cannot evaluate {len(ill)} rules, first {ill[0]}")
    return f"Prometheus evaluates the {len(groups)} groups of rules"


def checks(arguments: argparse.Namespace) -> list[Callable[[], str]]:
    """Return what is to be asked, in order."""
    asked: list[Callable[[], str]] = []
    if arguments.exporter:
        exporter = Server(arguments.exporter, credentials=arguments.credentials, is_own=True)
        asked += [partial(check, exporter) for check in (exporter_lives, names_have_addresses, engines_answer)]
    if arguments.prometheus:
        prometheus = Server(arguments.prometheus)
        asked.append(
            partial(
                prometheus_scrapes, prometheus, job=arguments.job, selector=arguments.selector, kind=arguments.monitor
            )
        )
        if arguments.exporter:
            asked.append(partial(labels_are_the_engines, prometheus))
        if arguments.groups:
            asked.append(partial(rules_are_loaded, prometheus, arguments.groups.split(",")))
    return asked


def answered(check: Callable[[], str], deadline: float) -> bool:
    """Ask until it is well or time is up, and print the last answer."""
    while True:
        try:
            print(f"ok    {check()}", flush=True)
            return True
        except Fault as fault:
            if time.monotonic() + PAUSE_SECONDS > deadline:
                print(f"FAULT {fault}", flush=True)
                return False
            time.sleep(PAUSE_SECONDS)


def main() -> int:
    """Ask, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exporter", default="", help="its URL")
    parser.add_argument(
        "--credentials", type=Path, help="a folder with `token`, or `username` and `password`, and `ca.crt`"
    )
    parser.add_argument("--prometheus", default="", help="its URL")
    parser.add_argument("--monitor", default="", help="ServiceMonitor or PodMonitor, where there is one")
    parser.add_argument("--job", default="", help="the job that it makes")
    parser.add_argument("--selector", default="", help="label matchers of its `up`")
    parser.add_argument("--groups", default="", help="groups of rules, with commas between them")
    parser.add_argument("--timeout", type=float, default=180, help="seconds until a fault counts")
    arguments = parser.parse_args()
    asked = checks(arguments)
    if not arguments.prometheus:
        print(
            "note  Prometheus is not asked: set test.prometheusUrl, e.g. http://prometheus-operated.monitoring.svc:9090"
        )
    if not asked:
        print("FAULT nothing to ask: in mode sidecar the exporters are in your pods; Prometheus alone knows them all")
        return 1
    deadline = time.monotonic() + arguments.timeout
    faults = sum(not answered(check, deadline) for check in asked)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
