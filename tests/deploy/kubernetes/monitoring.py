"""What Prometheus and Grafana get in a cluster is what deploy/prometheus and deploy/grafana have."""

import json

import yaml

from cluster import Cluster
from installations import ROOT, render


def _rules():
    names = ("recording.yml", "alerts.yml")
    return [group for name in names for group in yaml.safe_load((ROOT / "deploy/prometheus" / name).read_text())["groups"]]


def _dashboards():
    return {path.name: json.loads(path.read_text()) for path in (ROOT / "deploy/grafana/dashboards").glob("*.json")}


def problems_of(cluster):
    rules = cluster.find("PrometheusRule", "penstock")
    if rules is None or rules["spec"]["groups"] != _rules():
        yield "PrometheusRule/penstock: groups: are not those of deploy/prometheus"
    dashboards = cluster.find("ConfigMap", "penstock-dashboards")
    given = {} if dashboards is None else {name: json.loads(text) for name, text in dashboards["data"].items()}
    for name in sorted(set(_dashboards()) ^ set(given)):
        yield f"ConfigMap/penstock-dashboards: {name}: is there or in deploy/grafana/dashboards, and not in both"
    if dashboards is not None and dashboards["metadata"]["labels"].get("grafana_dashboard") != "1":
        yield "ConfigMap/penstock-dashboards: labels: Grafana's sidecar looks for grafana_dashboard"


def problems_of_monitoring(kubectl):
    return problems_of(Cluster(render(kubectl, "overlays/monitoring")))
