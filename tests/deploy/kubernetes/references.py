"""What objects say of each other: names that are there, selectors that select, ports that pods have."""

import re

from cluster import CLUSTER_WIDE, name_of, selects, title
from installations import ROOT, identity

NAMESPACE = "penstock"


def _ports(pods):
    """Names and numbers."""
    ports = [port for container in pods.containers() for port in container.get("ports", [])]
    return {port["name"] for port in ports} | {port["containerPort"] for port in ports}


def secrets_of_the_user():
    """That docs/kubernetes.md has the user make."""
    text = (ROOT / "docs/kubernetes.md").read_text()
    # `secret` is a function that the page makes for certificates.
    return set(re.findall(r"^(?:kubectl .*create secret generic|secret) (penstock-\S+)", text, re.MULTILINE))


def _identities(cluster):
    seen = set()
    for one in cluster.objects:
        if identity(one) in seen:
            yield f"{title(one)}: is there twice"
        seen.add(identity(one))
        namespace = one["metadata"].get("namespace")
        if (one["kind"] in CLUSTER_WIDE) != (namespace is None):
            yield f"{title(one)}: namespace: {namespace}: kinds of the whole cluster have none, all others one"
        elif namespace not in (None, NAMESPACE):
            yield f"{title(one)}: namespace: {namespace} is not {NAMESPACE}"


def _services(cluster):
    for service in cluster.of_kind("Service"):
        chosen = cluster.selected({"matchLabels": service["spec"]["selector"]})
        if not chosen:
            yield f"{title(service)}: selector: selects no pod"
        for pods in chosen:
            for port in service["spec"]["ports"]:
                if port.get("targetPort", port["port"]) not in _ports(pods):
                    yield f"{title(service)}: port {port['port']}: {pods.place} has no port {port.get('targetPort')}"


def _workloads(cluster):
    for one in cluster.of_kind("StatefulSet") + cluster.of_kind("Deployment"):
        spec = one["spec"]
        if not selects(spec["selector"], spec["template"]["metadata"]["labels"]):
            yield f"{title(one)}: selector: does not select its own pods"
        if one["kind"] != "StatefulSet":
            continue
        service = cluster.find("Service", spec["serviceName"])
        if service is None or not selects({"matchLabels": service["spec"]["selector"]}, spec["template"]["metadata"]["labels"]):
            yield f"{title(one)}: serviceName: no service {spec['serviceName']} of its pods"
    for pods in cluster.pods():
        terms = pods.spec.get("affinity", {}).get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
        for rule in [*terms, *pods.spec.get("topologySpreadConstraints", [])]:
            if not selects(rule["labelSelector"], pods.labels):
                yield f"{pods.place}: {rule['topologyKey']}: labelSelector: is about other pods"


def _budgets_and_scaling(cluster):
    for budget in cluster.of_kind("PodDisruptionBudget"):
        chosen = cluster.selected(budget["spec"]["selector"])
        if not chosen:
            yield f"{title(budget)}: selector: selects no pod"
        if budget["spec"].get("minAvailable", 0) >= max((pods.count for pods in chosen), default=1):
            yield f"{title(budget)}: minAvailable: no pod could ever be evicted"
    for scaler in cluster.of_kind("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        found = cluster.find(target["kind"], target["name"])
        if found is None:
            yield f"{title(scaler)}: scaleTargetRef: there is no {target['kind']}/{target['name']}"
        elif "replicas" in found["spec"]:
            yield f"{title(found)}: replicas: are the autoscaler's"
        for pods in [] if found is None else cluster.selected(found["spec"]["selector"]):
            if any("cpu" not in one["resources"]["requests"] for one in pods.containers()):
                yield f"{title(scaler)}: {pods.place} requests no cpu, of which it would take a share"


def _policies(cluster):
    for policy in cluster.of_kind("NetworkPolicy"):
        spec = policy["spec"]
        own = cluster.selected(spec["podSelector"])
        if not own:
            yield f"{title(policy)}: podSelector: selects no pod"
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            if spec.get(direction) and direction.capitalize() not in spec["policyTypes"]:
                yield f"{title(policy)}: policyTypes: {direction} is missing"
            for rule in spec.get(direction, []):
                yield from _rule(cluster, policy, rule, peers, own if direction == "ingress" else None)


def _rule(cluster, policy, rule, peers, receivers):
    """Receivers: None where they are the peers."""
    for peer in rule.get(peers, []):
        if "namespaceSelector" in peer:
            continue
        chosen = cluster.selected(peer["podSelector"])
        if not chosen:
            yield f"{title(policy)}: {peers}: podSelector: selects no pod"
        for pods in chosen if receivers is None else receivers:
            for port in rule.get("ports", []):
                if port["port"] not in _ports(pods):
                    yield f"{title(policy)}: {peers}: {pods.place} has no port {port['port']}"


def _volume(cluster, volume, secrets):
    """What is missing of a volume."""
    if "configMap" in volume and cluster.find("ConfigMap", volume["configMap"]["name"]) is None:
        return f"there is no ConfigMap {volume['configMap']['name']}"
    if "secret" in volume and volume["secret"]["secretName"] not in secrets:
        return f"nobody makes the secret {volume['secret']['secretName']}"
    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
    if claim is not None and cluster.find("PersistentVolumeClaim", claim) is None:
        return f"there is no PersistentVolumeClaim {claim}"
    return None


def _secrets(cluster):
    made = {certificate["spec"]["secretName"] for certificate in cluster.of_kind("Certificate")}
    # Certificates are made by overlays/tls, or by the user in its place.
    return made | {name for name in secrets_of_the_user() if not made or not name.endswith("-tls")}


def _volumes(cluster):
    secrets = _secrets(cluster)
    for pods in cluster.pods():
        volumes = {volume["name"] for volume in pods.spec.get("volumes", [])} | {name_of(claim) for claim in pods.claims}
        mounts = {mount["name"] for one in pods.containers() for mount in one.get("volumeMounts", [])}
        for name in sorted(mounts - volumes):
            yield f"{pods.place}: volumeMounts: there is no volume {name}"
        for name in sorted(volumes - mounts):
            yield f"{pods.place}: volumes: nobody mounts {name}"
        for volume in pods.spec.get("volumes", []):
            problem = _volume(cluster, volume, secrets)
            if problem:
                yield f"{pods.place}: volume {volume['name']}: {problem}"
        for container in pods.containers():
            if any("subPath" in mount for mount in container.get("volumeMounts", [])):
                yield f"{pods.place}: volumeMounts: files below a subPath are never renewed"


def _environment(cluster):
    secrets = _secrets(cluster)
    for pods in cluster.pods():
        for container in pods.containers():
            for variable in container.get("env", []):
                source = variable.get("valueFrom", {})
                key = source.get("configMapKeyRef")
                found = key and cluster.find("ConfigMap", key["name"])
                if key and (found is None or key["key"] not in found["data"]):
                    yield f"{pods.place}: env {variable['name']}: there is no {key['key']} in a ConfigMap {key['name']}"
                key = source.get("secretKeyRef")
                if key and key["name"] not in secrets:
                    yield f"{pods.place}: env {variable['name']}: nobody makes the secret {key['name']}"


def _accounts_and_priorities(cluster):
    for pods in cluster.pods():
        for kind, name in (("ServiceAccount", pods.spec.get("serviceAccountName")), ("PriorityClass", pods.spec["priorityClassName"])):
            # The job's overlays come on top of base/planner, which has both.
            if name is not None and cluster.find(kind, name) is None:
                yield f"{pods.place}: there is no {kind} {name}"


def _dropped(endpoint, metric):
    return any(rule["action"] == "drop" and rule["sourceLabels"] == ["__name__"] and re.fullmatch(rule["regex"], metric)
               for rule in endpoint.get("metricRelabelings", []))


def _leaders(cluster):
    """Planners of PlanBatch each lead a store of their own: alerts about who leads the jobs must not count them."""
    for monitor in cluster.of_kind("ServiceMonitor"):
        of_jobs = monitor["spec"]["selector"]["matchLabels"].get("app.kubernetes.io/component") != "plan-batch"
        for endpoint in monitor["spec"]["endpoints"]:
            for metric in ("penstock_leader", "penstock_leader_changes_total"):
                if _dropped(endpoint, metric) == of_jobs:
                    yield f"{title(monitor)}: metricRelabelings: {metric} is {'dropped' if of_jobs else 'counted'}"


def _pod_monitors(cluster):
    for monitor in cluster.of_kind("PodMonitor"):
        chosen = cluster.selected(monitor["spec"]["selector"])
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            if not chosen or any(endpoint["port"] not in _ports(pods) for pods in chosen):
                yield f"{title(monitor)}: selector: selects no pod with a port {endpoint['port']}, or one without"
        for pods in chosen:
            if pods.labels.get(monitor["spec"].get("jobLabel")) != "penstock-worker":
                yield f"{title(monitor)}: jobLabel: dashboards know workers as penstock-worker"


def _monitoring(cluster):
    for monitor in cluster.of_kind("ServiceMonitor"):
        chosen = [one for one in cluster.of_kind("Service") if selects(monitor["spec"]["selector"], one["metadata"].get("labels", {}))]
        for endpoint in monitor["spec"]["endpoints"]:
            if not any(port["name"] == endpoint["port"] for one in chosen for port in one["spec"]["ports"]):
                yield f"{title(monitor)}: selector: selects no service with a port {endpoint['port']}"
        for service in chosen:
            value = service["metadata"]["labels"].get(monitor["spec"].get("jobLabel"))
            if value != "penstock-planner":
                yield f"{title(monitor)}: jobLabel: alerts know planners as penstock-planner, not as {value}"


CHECKS = (_identities, _services, _workloads, _budgets_and_scaling, _policies, _volumes, _environment,
          _accounts_and_priorities, _monitoring, _pod_monitors, _leaders)


def problems(cluster):
    for check in CHECKS:
        yield from check(cluster)
