"""Pods as processes of this machine: what a kubelet does with a rendered pod, as far as it goes without containers.

Volumes are folders, the paths of mounts in command lines are replaced by them, ports by free ones of the local address, and names of services
by that address. Everything else of a command line stays as it is rendered.
"""

import os
import pathlib
import re
import sys
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from command_lines import CommandLine, size
from network import addresses
from processes import Process, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from free_ports import free_ports  # noqa: E402

LOCAL = "127.0.0.1"
PATIENCE_SECONDS = 60


class Kubelet:
    """All pods of one installation."""

    def __init__(self, cluster, binaries, folder, secrets):
        """Secrets: by name, {key: text}."""
        self.cluster, self.binaries, self.folder, self.secrets = cluster, binaries, folder, secrets
        # (name of a service, port) to what listens on this machine, of each pod behind it.
        self.endpoints = {}

    def start(self, pods, index=0, extra=(), replaced=None):
        """The container of one pod. `extra`: arguments beside those of the manifest; `replaced`: texts in arguments."""
        name = re.sub(r"\W+", "-", pods.place.lower()) + f"-{index}"
        pod = RunningPod(pods, name, self)
        return pod.start(index, extra, replaced or {})

    def volume(self, pods, name, pod_name):
        """The folder of a volume: claims are shared by all pods, the rest is the pod's own."""
        source = next((one for one in pods.spec.get("volumes", []) if one["name"] == name), {})
        if "persistentVolumeClaim" in source:
            path = self.folder / "claims" / source["persistentVolumeClaim"]["claimName"]
        else:
            path = self.folder / pod_name / name
        path.mkdir(parents=True, exist_ok=True)
        files = {}
        if "configMap" in source:
            files = self.cluster.find("ConfigMap", source["configMap"]["name"])["data"]
        elif "secret" in source:
            files = self.secrets[source["secret"]["secretName"]]
        for key, text in files.items():
            (path / key).write_text(text)
        return path


class RunningPod:
    def __init__(self, pods, name, kubelet):
        self.pods, self.name, self.kubelet = pods, name, kubelet
        self.container = pods.container()
        self.flags = CommandLine(self.container).flags
        # By the port of the manifest, that of this machine.
        self.ports = {port["containerPort"]: free_ports(1) for port in self.container.get("ports", [])}
        self.process = None

    def start(self, index, extra, replaced):
        environment = {"PATH": os.environ["PATH"], **self._environment()}
        arguments = [self._expand(argument, environment) for argument in self.container["args"]]
        for old, new in replaced.items():
            assert any(old in argument for argument in arguments), f"{self.name}: no argument has {old}"
            arguments = [argument.replace(old, new) for argument in arguments]
        if self.pods.job is not None and self.pods.job.get("completionMode") == "Indexed":
            environment["JOB_COMPLETION_INDEX"] = str(index)
        command = [self.kubelet.binaries / self.container["command"][0], *self.container["command"][1:]]
        folder = self.kubelet.folder / self.name
        folder.mkdir(parents=True, exist_ok=True)
        grace = self.pods.spec.get("terminationGracePeriodSeconds", 30)
        self.process = Process([*command, *arguments, *extra], folder / "log", environment, grace)
        self._publish()
        return self

    def _publish(self):
        for service in self.kubelet.cluster.of_kind("Service"):
            if self.pods not in self.kubelet.cluster.selected({"matchLabels": service["spec"]["selector"]}):
                continue
            for port in service["spec"]["ports"]:
                declared = next(one["containerPort"] for one in self.container["ports"] if port["targetPort"] in (one["name"], one["containerPort"]))
                key = (service["metadata"]["name"], port["port"])
                self.kubelet.endpoints.setdefault(key, []).append(f"{LOCAL}:{self.ports[declared]}")

    def _environment(self):
        values = {}
        for variable in self.container.get("env", []):
            source = variable.get("valueFrom", {})
            if "configMapKeyRef" in source:
                key = source["configMapKeyRef"]
                value = self.kubelet.cluster.find("ConfigMap", key["name"])["data"][key["key"]]
            elif "secretKeyRef" in source:
                value = self.kubelet.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
            elif "fieldRef" in source:
                value = {"status.podIP": LOCAL}[source["fieldRef"]["fieldPath"]]
            elif "resourceFieldRef" in source:
                kind, _, resource = source["resourceFieldRef"]["resource"].partition(".")
                value = str(size(str(self.container["resources"][kind][resource])))
            else:
                value = variable["value"]
            values[variable["name"]] = value
        return values

    def _expand(self, argument, environment):
        argument = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], argument)
        mounts = {mount["mountPath"]: mount["name"] for mount in self.container.get("volumeMounts", [])}
        if mounts:
            # At the begin of a value: "--tls-ca=/etc/...", "--store=sqlite:/var/lib/...".
            paths = "|".join(map(re.escape, mounts))
            argument = re.sub(rf"(?<=[=:])({paths})(?=/)",
                              lambda found: str(self.kubelet.volume(self.pods, mounts[found[1]], self.name)), argument)
        flag, _, value = argument.partition("=")
        if flag.endswith("listen") or flag == "--advertise":
            host, _, port = value.rpartition(":")
            # What is open to all addresses there is open to this machine alone.
            return f"{flag}={host.replace('0.0.0.0', LOCAL)}:{self.ports[int(port)]}"
        for called, host, port in addresses(self.kubelet.cluster, self.container):
            if called == flag == "--planner":
                return f"{flag}={','.join(self.kubelet.endpoints[host, port])}"
        return argument

    def log(self):
        return self.process.log.read_text()

    def probe(self, field):
        """Whether a probe of the manifest, with its time-out, says yes."""
        probe = self.container[field]
        request = health_pb2.HealthCheckRequest(service=probe["grpc"].get("service", ""))
        with grpc.insecure_channel(f"{LOCAL}:{self.ports[probe['grpc']['port']]}") as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=probe.get("timeoutSeconds", 1))
            except grpc.RpcError:
                return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    def wait_until_ready(self):
        """As a kubelet goes on: the probe of the start, then the others."""
        def ready():
            if self.process.ended():
                raise AssertionError(f"{self.name} ended with {self.process.status()}:\n{self.log()}")
            return all(self.probe(field) for field in ("startupProbe", "livenessProbe", "readinessProbe"))
        wait_until(f"{self.name} is ready", ready, PATIENCE_SECONDS)

    def metrics(self):
        port = next(one["containerPort"] for one in self.container["ports"] if one["name"] == "metrics")
        with urllib.request.urlopen(f"http://{LOCAL}:{self.ports[port]}/metrics", timeout=10) as answer:
            return answer.read().decode()
