"""Renders the chart in several ways, and checks what comes out: see scripts/check-chart."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import helm_python as helm
import kubernetes_validate
import yaml

CHART = Path(__file__).parent / "disbatch"
# The oldest that the chart is for, and a new one.
KUBERNETES = ["1.27", "1.34"]
CONFIG = {"mongohost": "mongodb://mongo/?replicaSet=rs0", "database": "disbatch", "metrics": {"listen": "0.0.0.0:9464"}}
EVERYTHING = {
    "existingSecret": "disbatch",
    "imagePullSecrets": [{"name": "registry"}],
    "plugins": {
        "volumes": [{"name": "plugins", "configMap": {"name": "plugins", "defaultMode": 0o555}}],
        "volumeMounts": [{"name": "plugins", "mountPath": "/opt/plugins"}],
    },
    "dci": {
        "insecureNoAuth": True,
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "certificate", "annotations": {"a/b": "c"}},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
    "den": {
        "interrupt": True,
        "serviceAccountName": "jobs",
        "env": [{"name": "TZ", "value": "UTC"}],
        "tmp": {"sizeLimit": "10Gi"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "dciTokenSecret": {"name": "token"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {
        "enabled": True,
        "dciFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        "metricsFrom": [{"namespaceSelector": {}}],
    },
}
# Each with the kinds that have to come out besides the usual ones.
WAYS = {
    "a trial": ({"config": CONFIG}, ["Secret", "PodDisruptionBudget"]),
    "everything": (
        EVERYTHING,
        ["Ingress", "PodDisruptionBudget", "NetworkPolicy", "NetworkPolicy", "ServiceMonitor", "ServiceMonitor", "PrometheusRule"],
    ),
    "nothing but what must be": (
        {"existingSecret": "disbatch", "metricsPort": 0, "dci": {"podDisruptionBudget": {"enabled": False}},
         "serviceMonitor": {"enabled": True}, "networkPolicy": {"enabled": True}},
        ["NetworkPolicy", "NetworkPolicy", "ServiceMonitor"],
    ),
}
USUAL = ["Deployment", "Service", "StatefulSet", "Service"]
OPERATOR = "monitoring.coreos.com/v1"


class Strict(yaml.SafeLoader):
    """Refuses a key that is there twice, which YAML would let win silently."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"{twice} are there twice: {node.start_mark}")
        return super().construct_mapping(node, deep)


def fail(what: str) -> None:
    sys.exit(f"check-chart: {what}")


def manifests(chart: helm.Chart, values: dict) -> list[dict]:
    rendered = chart.render(values, name="night", namespace="batch")
    files = [text for name, text in rendered.items() if name.endswith(".yaml")]
    return [manifest for text in files for manifest in yaml.load_all(text, Strict) if manifest]


def check_rules(rule: dict) -> None:
    """That they are those of packaging/prometheus but for what would tell of each pod that is replaced, and promtool takes them."""
    rules = Path(__file__).parent.parent / "prometheus/disbatch.rules.yml"
    wanted = yaml.safe_load(rules.read_text())
    for group in wanted["groups"]:
        group["rules"] = [one for one in group["rules"] if one["alert"] != "DisbatchProcessGone"]
    if rule["spec"] != wanted:
        fail("the PrometheusRule has other rules than packaging/prometheus/disbatch.rules.yml")
    if not shutil.which("promtool"):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        yaml.safe_dump(rule["spec"], file)
        file.flush()
        ended = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
    if ended.returncode != 0:
        fail(f"promtool: {ended.stdout}{ended.stderr}")


def check_references(way: str, found: list[dict]) -> None:
    """What names something else of the chart names what is there."""
    workloads = [manifest for manifest in found if manifest["kind"] in ("Deployment", "StatefulSet")]
    pods = [workload["spec"]["template"] for workload in workloads]
    services = {manifest["metadata"]["name"]: manifest for manifest in found if manifest["kind"] == "Service"}

    def selected(selector: dict) -> list[str]:
        labels = [(workload["metadata"]["name"], workload["spec"]["template"]["metadata"]["labels"]) for workload in workloads]
        return [name for name, labels in labels if selector.items() <= labels.items()]

    for manifest in found:
        kind, spec = manifest["kind"], manifest.get("spec", {})
        wanted = {
            "Deployment": spec.get("selector", {}).get("matchLabels"),
            "StatefulSet": spec.get("selector", {}).get("matchLabels"),
            "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels"),
            "Service": spec.get("selector"),
            "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
        }.get(kind)
        # Whatever is about a workload has its name.
        if wanted is not None and selected(wanted) != [manifest["metadata"]["name"]]:
            fail(f"{way}: {kind} {manifest['metadata']['name']} is about other pods: {wanted}")
        if kind == "ServiceMonitor":
            chosen = [s for s in services.values() if spec["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()]
            if len(chosen) != 1 or spec["endpoints"][0]["port"] not in [port["name"] for port in chosen[0]["spec"].get("ports", [])]:
                fail(f"{way}: ServiceMonitor {manifest['metadata']['name']} finds no service with its port")
        if kind == "Ingress":
            for rule in spec["rules"]:
                if rule["http"]["paths"][0]["backend"]["service"]["name"] not in services:
                    fail(f"{way}: the Ingress leads to no service")
    for pod in pods:
        security = pod["spec"]["containers"][0]["securityContext"]
        if not (pod["spec"]["securityContext"]["runAsNonRoot"] and security["readOnlyRootFilesystem"]):
            fail(f"{way}: a pod may be root, or write to its root")


def main() -> None:
    # 1 is for what is nice to have, such as a picture.
    linted = helm.lint(str(CHART), values={"config": CONFIG})
    found = [message for message in linted["messages"] if message["severity"] > 1] + linted["errors"]
    if found:
        fail(f"helm lint: {found}")
    with helm.Chart.load(str(CHART)) as chart:
        for way, (values, kinds) in WAYS.items():
            found = manifests(chart, values)
            if sorted(manifest["kind"] for manifest in found) != sorted(USUAL + kinds):
                fail(f"{way}: {[manifest['kind'] for manifest in found]}")
            for manifest in found:
                if manifest["apiVersion"] == OPERATOR:
                    continue
                for version in KUBERNETES:
                    try:
                        kubernetes_validate.validate(manifest, version, strict=True)
                    except kubernetes_validate.ValidationError as error:
                        fail(f"{way}: {manifest['kind']} for Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message}")
            check_references(way, found)
            for manifest in found:
                if manifest["kind"] == "PrometheusRule":
                    check_rules(manifest)
                if manifest["kind"] == "Secret" and json.loads(manifest["stringData"]["config.json"]) != CONFIG:
                    fail(f"{way}: another configuration is in the Secret")
            print(f"{way}: {len(found)} manifests are as Kubernetes {' and '.join(KUBERNETES)} want them")
        try:
            manifests(chart, {})
        except helm.HelmError as error:
            if "existingSecret" not in str(error):
                fail(f"without a configuration: {error}")
        else:
            fail("without a configuration it is rendered all the same")


if __name__ == "__main__":
    main()
