"""What dashboards and recording rules ask, and a Prometheus that is asked."""

import json
import pathlib
import re
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def query(address, expression):
    """The series that a Prometheus at "host:port" answers with."""
    url = f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]["result"]


def expressions(job, rate_window):
    """(where it stands, the query with Grafana's variables set)."""
    for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                text = target["expr"].replace("$__rate_interval", rate_window).replace("$training_job", job).replace("$rank", ".*")
                yield f"{path.name}, {panel['title']}", text
    rules = (ROOT / "deploy/prometheus/recording.yml").read_text()
    for name in re.findall(r"record: (\S+)", rules):
        yield "recording.yml", name


def without_data(address, job, rate_window, unknown=()):
    """Queries that nothing answers. `unknown`: metrics that the job does not have."""
    missing = []
    for place, expression in expressions(job, rate_window):
        if any(metric in expression for metric in unknown):
            continue
        try:
            if not query(address, expression):
                missing.append(f"{place}: no data: {expression}")
        except OSError as error:
            missing.append(f"{place}: {error}: {expression}")
    return missing
