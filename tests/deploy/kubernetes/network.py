"""Who reaches whom through the NetworkPolicies, and whether every address of a command line is reached."""

import re

from cluster import selects
from command_lines import CommandLine


def _port_of(pods, port):
    """As a number."""
    for container in pods.containers():
        for one in container.get("ports", []):
            if port in (one["name"], one["containerPort"]):
                return one["containerPort"]
    return port


def _allows(rules, peers, other, receiver, port):
    for rule in rules:
        ports = [_port_of(receiver, one["port"]) for one in rule.get("ports", [])]
        near = any("namespaceSelector" not in peer and selects(peer["podSelector"], other.labels) for peer in rule.get(peers, []))
        if near and (not ports or port in ports):
            return True
    return False


def _passes(cluster, pods, direction, other, receiver, port):
    """One side of a connection. Pods that no policy of a direction selects take everything."""
    peers = "from" if direction == "ingress" else "to"
    own = [policy["spec"] for policy in cluster.of_kind("NetworkPolicy")
           if direction.capitalize() in policy["spec"]["policyTypes"] and selects(policy["spec"]["podSelector"], pods.labels)]
    return not own or any(_allows(spec.get(direction, []), peers, other, receiver, port) for spec in own)


def reaches(cluster, sender, receiver, port):
    return (_passes(cluster, sender, "egress", receiver, receiver, port)
            and _passes(cluster, receiver, "ingress", sender, receiver, port))


def addresses(cluster, container):
    """(flag, host, port) of those that a command line calls, variables of ConfigMaps put in."""
    values = {}
    for variable in container.get("env", []):
        key = variable.get("valueFrom", {}).get("configMapKeyRef")
        if key and cluster.find("ConfigMap", key["name"]):
            values[variable["name"]] = cluster.find("ConfigMap", key["name"])["data"].get(key["key"], "")
    flags = CommandLine(container).flags
    if "--planner" in flags:
        text = re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], ""), flags["--planner"])
        host, _, port = text.removeprefix("dns:///").partition(":")
        yield "--planner", host, int(port or 0)
    if flags.get("--store", "").startswith("postgres:"):
        yield "--store", re.match(r"postgres://[^@]*@([^/:]+)", flags["--store"])[1], 5432


def _call(cluster, pods, flag, host, port):
    service = cluster.find("Service", host)
    served = [one for one in service["spec"]["ports"] if one["port"] == port] if service else []
    if not served:
        yield f"{pods.place}: {flag}: no service has the address {host}:{port}"
        return
    for receiver in cluster.selected({"matchLabels": service["spec"]["selector"]}):
        if not reaches(cluster, pods, receiver, _port_of(receiver, served[0]["targetPort"])):
            yield f"{pods.place}: {flag}: no NetworkPolicy lets it reach {receiver.place}"


def _names_in_certificates(cluster, pods, flag, host):
    planners = [one for one in cluster.of_kind("Certificate") if "server auth" in one["spec"].get("usages", [])]
    if flag == "--planner" and planners and not any(host in one["spec"].get("dnsNames", []) for one in planners):
        yield f"{pods.place}: {flag}: no certificate names {host}"


def _closed_doors(cluster):
    """Nobody reaches workers, or the database, who has no part in them."""
    every = cluster.pods()
    for receiver in every:
        name = receiver.labels.get("app.kubernetes.io/name")
        for sender in every:
            if name == "penstock-worker" and reaches(cluster, sender, receiver, 40000) != (sender.labels == receiver.labels):
                yield f"{sender.place}: reaches {receiver.place}, or its own do not reach each other"
            calls_store = "--store" in {flag for flag, _, _ in addresses(cluster, sender.container())}
            if name == "penstock-postgres" and reaches(cluster, sender, receiver, 5432) != calls_store:
                yield f"{sender.place}: reaches {receiver.place}, or its planners do not"


def problems(cluster):
    planned = any(pods.labels.get("app.kubernetes.io/name") == "penstock-planner" for pods in cluster.pods())
    for pods in cluster.pods() if planned else []:
        for flag, host, port in addresses(cluster, pods.container()):
            yield from _call(cluster, pods, flag, host, port)
            yield from _names_in_certificates(cluster, pods, flag, host)
    yield from _closed_doors(cluster)
