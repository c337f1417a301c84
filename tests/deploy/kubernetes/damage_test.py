"""Plants one damage at a time into what is rendered, and sees that the checks name it.

Usage: tests/deploy/kubernetes/damage_test.py BIN_FOLDER KUBECTL
"""

import copy
import functools
import sys
import unittest

import checks
from cluster import Cluster
from installations import installation
from monitoring import problems_of

BINARIES, KUBECTL = "", ""


@functools.cache
def _rendered(name):
    return installation(KUBECTL, name)


class Damaged:
    """An installation that a test may change."""

    def __init__(self, name):
        self.cluster = Cluster(copy.deepcopy(_rendered(name)))

    def object(self, kind, name):
        found = self.cluster.find(kind, name)
        assert found is not None, f"{kind}/{name}"
        return found

    def pod(self, place):
        return next(pods for pods in self.cluster.pods() if pods.place == place)

    def container(self, place):
        return self.pod(place).container()

    def remove(self, kind, name):
        self.cluster.objects.remove(self.object(kind, name))

    def replace_argument(self, place, old, new):
        arguments = self.container(place)["args"]
        arguments[next(index for index, one in enumerate(arguments) if one.startswith(old))] = new

    def problems(self):
        return checks.problems(self.cluster.objects, BINARIES)


PLANNER = "StatefulSet/penstock-planner"
WORKERS = "JobSet/train, workers"
FEEDER = "JobSet/train, feeder"


class DamageTest(unittest.TestCase):
    maxDiff = None

    def refused(self, damaged, *parts):
        """The only problems are those that say all of `parts`."""
        found = damaged.problems()
        self.assertTrue(found, "nothing was refused")
        for problem in found:
            for part in parts:
                self.assertIn(part, problem)


class SchemaDamage(DamageTest):
    def test_field_that_kubernetes_does_not_know(self):
        damaged = Damaged("base")
        damaged.container(PLANNER)["readynessProbe"] = {}
        self.refused(damaged, PLANNER, "readynessProbe")

    def test_value_of_a_wrong_type(self):
        damaged = Damaged("base")
        damaged.object("HorizontalPodAutoscaler", "penstock-plan-batch")["spec"]["minReplicas"] = "two"
        self.refused(damaged, "HorizontalPodAutoscaler/penstock-plan-batch", "minReplicas")

    def test_version_of_the_api_that_is_gone(self):
        damaged = Damaged("base")
        damaged.object("PodDisruptionBudget", "penstock-planner")["apiVersion"] = "policy/v1beta1"
        self.refused(damaged, "PodDisruptionBudget/penstock-planner", "policy/v1beta1")

    def test_field_within_the_jobs_of_a_job_set(self):
        damaged = Damaged("base")
        damaged.pod(WORKERS).job["completionmode"] = "Indexed"
        self.refused(damaged, WORKERS, "completionmode")

    def test_unknown_action_of_a_job_set(self):
        damaged = Damaged("base")
        damaged.object("JobSet", "train")["spec"]["failurePolicy"]["rules"][0]["action"] = "GiveUp"
        self.refused(damaged, "JobSet/train", "GiveUp")

    def test_field_that_a_custom_resource_does_not_know(self):
        for kind, name, where in (("ServiceMonitor", "penstock-planner", "tls and monitoring"), ("Certificate", "penstock-client-tls", "gpu"),
                                  ("ClusterQueue", "penstock", "kueue"), ("LocalQueue", "penstock", "kueue")):
            with self.subTest(kind):
                damaged = Damaged(where)
                damaged.object(kind, name)["spec"]["nonsense"] = 1
                self.refused(damaged, f"{kind}/{name}", "nonsense")


class ReferenceDamage(DamageTest):
    def test_selectors_that_select_nothing(self):
        for kind, path in (("Service", ["selector"]), ("PodDisruptionBudget", ["selector", "matchLabels"]),
                           ("NetworkPolicy", ["podSelector", "matchLabels"])):
            with self.subTest(kind):
                damaged = Damaged("base")
                name = {"Service": "penstock-plan-batch", "PodDisruptionBudget": "penstock-plan-batch", "NetworkPolicy": "train-workers"}[kind]
                labels = damaged.object(kind, name)["spec"]
                for key in path:
                    labels = labels[key]
                labels["app.kubernetes.io/name"] = "someone-else"
                self.assertTrue([one for one in damaged.problems() if f"{kind}/{name}" in one and "selects no pod" in one])

    def test_monitor_that_selects_no_service(self):
        damaged = Damaged("tls and monitoring")
        damaged.object("ServiceMonitor", "penstock-planner")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] = "x"
        self.refused(damaged, "ServiceMonitor/penstock-planner", "selects no service")

    def test_monitor_of_pods_that_selects_none_with_its_port(self):
        for part, key, value in (("selector", "matchLabels", {"app.kubernetes.io/name": "x"}), ("podMetricsEndpoints", 0, {"port": "health"})):
            damaged = Damaged("tls and monitoring")
            damaged.object("PodMonitor", "penstock-worker")["spec"][part][key] = value
            self.refused(damaged, "PodMonitor/penstock-worker", "selects no pod with a port")

    def test_leaders_that_are_counted_and_lead_no_jobs(self):
        damaged = Damaged("tls and monitoring")
        del damaged.object("ServiceMonitor", "penstock-plan-batch")["spec"]["endpoints"][0]["metricRelabelings"]
        self.refused(damaged, "ServiceMonitor/penstock-plan-batch", "penstock_leader")

    def test_workload_that_does_not_select_its_own_pods(self):
        damaged = Damaged("base")
        damaged.object("Deployment", "penstock-plan-batch")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] = "x"
        found = damaged.problems()
        self.assertIn("Deployment/penstock-plan-batch: selector: does not select its own pods", found)

    def test_port_that_no_pod_has(self):
        damaged = Damaged("base")
        damaged.object("Service", "penstock-planner")["spec"]["ports"][0]["targetPort"] = "http"
        self.assertIn("Service/penstock-planner: port 7070: StatefulSet/penstock-planner has no port http", damaged.problems())

    def test_mount_without_volume(self):
        damaged = Damaged("base")
        damaged.container(WORKERS)["volumeMounts"][0]["name"] = "dataset"
        found = damaged.problems()
        self.assertIn(f"{WORKERS}: volumeMounts: there is no volume dataset", found)
        self.assertIn(f"{WORKERS}: volumes: nobody mounts data", found)

    def test_objects_that_pods_need_and_nobody_makes(self):
        for kind, name in (("ServiceAccount", "penstock-worker"), ("PriorityClass", "penstock-training"),
                           ("PersistentVolumeClaim", "penstock-checkpoints"), ("ConfigMap", "penstock-planner")):
            with self.subTest(kind):
                damaged = Damaged("base")
                damaged.remove(kind, name)
                self.assertTrue([one for one in damaged.problems() if name in one and "there is no" in one])

    def test_secret_that_nobody_makes(self):
        damaged = Damaged("tls and monitoring")
        damaged.remove("Certificate", "penstock-worker-tls")
        found = damaged.problems()
        self.assertIn(f"{WORKERS}: volume tls: nobody makes the secret penstock-worker-tls", found)

    def test_autoscaler_of_nothing(self):
        damaged = Damaged("base")
        damaged.object("HorizontalPodAutoscaler", "penstock-plan-batch")["spec"]["scaleTargetRef"]["name"] = "penstock-planner"
        self.refused(damaged, "scaleTargetRef: there is no Deployment/penstock-planner")

    def test_budget_that_holds_up_every_drain(self):
        damaged = Damaged("base")
        damaged.object("PodDisruptionBudget", "penstock-planner")["spec"] = {
            "minAvailable": 1, "selector": damaged.object("PodDisruptionBudget", "penstock-planner")["spec"]["selector"]}
        self.refused(damaged, "minAvailable: no pod could ever be evicted")

    def test_object_in_another_namespace(self):
        damaged = Damaged("base")
        damaged.object("Service", "penstock-planners")["metadata"]["namespace"] = "default"
        self.refused(damaged, "Service/penstock-planners", "namespace")


class HardeningDamage(DamageTest):
    def test_pods_that_may_do_more_than_they_need(self):
        for place, field, value in (("pod", "runAsNonRoot", False), ("pod", "seccompProfile", {"type": "Unconfined"}),
                                    ("pod", "runAsUser", 1000), ("container", "readOnlyRootFilesystem", False),
                                    ("container", "allowPrivilegeEscalation", True), ("container", "capabilities", {"drop": ["NET_RAW"]})):
            with self.subTest(field):
                damaged = Damaged("base")
                pod = damaged.pod(WORKERS)
                (pod.spec if place == "pod" else pod.container())["securityContext"][field] = value
                self.refused(damaged, WORKERS, "securityContext")

    def test_container_without_limits(self):
        damaged = Damaged("base")
        del damaged.container(FEEDER)["resources"]["limits"]
        self.refused(damaged, FEEDER, "no limit of memory")

    def test_image_of_another_version(self):
        damaged = Damaged("base")
        damaged.container(FEEDER)["image"] = "penstock-planner:0.0.9"
        self.refused(damaged, FEEDER, "is not of version")

    def test_server_without_a_probe(self):
        damaged = Damaged("base")
        del damaged.container(PLANNER)["readinessProbe"]
        self.refused(damaged, PLANNER, "readinessProbe")


class CommandLineDamage(DamageTest):
    def test_flag_that_the_planner_does_not_have(self):
        damaged = Damaged("base")
        damaged.container(PLANNER)["args"].append("--tls-clientca=/etc/penstock/tls/ca.crt")
        self.refused(damaged, PLANNER, "--tls-clientca", "no such flag")

    def test_flag_that_the_worker_does_not_have(self):
        damaged = Damaged("base")
        damaged.container(WORKERS)["args"].append("--job-id=train")
        self.refused(damaged, WORKERS, "--job-id", "no such flag")

    def test_flag_without_its_value(self):
        damaged = Damaged("base")
        damaged.container(WORKERS)["args"].append("--max-rejoins")
        self.refused(damaged, WORKERS, "--max-rejoins", "takes a value")

    def test_variable_that_is_not_set(self):
        damaged = Damaged("base")
        damaged.container(WORKERS)["env"] = [one for one in damaged.container(WORKERS)["env"] if one["name"] != "POD_IP"]
        self.refused(damaged, WORKERS, "$(POD_IP)", "no such variable")

    def test_variable_that_nobody_reads(self):
        damaged = Damaged("base")
        damaged.container(PLANNER)["env"].append({"name": "PENSTOCK_LISTEN", "value": "0.0.0.0:7070"})
        self.refused(damaged, PLANNER, "PENSTOCK_LISTEN", "nobody reads it")

    def test_port_other_than_the_flag_says(self):
        damaged = Damaged("base")
        damaged.replace_argument(PLANNER, "--metrics-listen", "--metrics-listen=0.0.0.0:9090")
        self.refused(damaged, PLANNER, "ports")

    def test_metrics_of_workers_that_nobody_reaches(self):
        damaged = Damaged("base")
        damaged.replace_argument(WORKERS, "--metrics-listen", "--metrics-listen=127.0.0.1:7080")
        self.refused(damaged, WORKERS, "--metrics-listen")
        damaged = Damaged("base")
        damaged.replace_argument(WORKERS, "--metrics-listen", "--metrics-listen=0.0.0.0:9090")
        self.refused(damaged, WORKERS, "ports")

    def test_probe_of_a_port_with_certificates(self):
        damaged = Damaged("base")
        damaged.container(PLANNER)["livenessProbe"]["grpc"]["port"] = 7070
        self.refused(damaged, PLANNER, "livenessProbe", "7070")

    def test_probe_of_a_service_that_nobody_knows(self):
        damaged = Damaged("base")
        damaged.container(PLANNER)["readinessProbe"]["grpc"]["service"] = "penstock.PlannerService"
        self.refused(damaged, PLANNER, "readinessProbe", "no such service")

    def test_listener_for_this_pod_alone(self):
        damaged = Damaged("base")
        damaged.replace_argument(PLANNER, "--listen", "--listen=127.0.0.1:7070")
        self.refused(damaged, PLANNER, "--listen")

    def test_path_on_no_volume(self):
        damaged = Damaged("base")
        damaged.replace_argument(WORKERS, "--checkpoint-dir", "--checkpoint-dir=/scratch/train")
        self.refused(damaged, WORKERS, "--checkpoint-dir", "on no volume")

    def test_checkpoints_on_a_volume_that_is_read_only(self):
        damaged = Damaged("base")
        damaged.replace_argument(WORKERS, "--checkpoint-dir", "--checkpoint-dir=/data/checkpoints")
        self.refused(damaged, WORKERS, "--checkpoint-dir", "readOnly")

    def test_pod_that_is_killed_while_it_writes_its_checkpoint(self):
        damaged = Damaged("base")
        damaged.pod(WORKERS).spec["terminationGracePeriodSeconds"] = 60
        self.refused(damaged, WORKERS, "--stop-seconds")

    def test_planner_that_takes_more_memory_than_it_has(self):
        damaged = Damaged("base")
        damaged.replace_argument(PLANNER, "--memory", "--memory=6GB")
        self.refused(damaged, PLANNER, "--memory")

    def test_planner_that_serves_anyone_beside_certificates(self):
        damaged = Damaged("base")
        damaged.container(PLANNER)["args"].append("--allow-anyone")
        self.refused(damaged, PLANNER, "--allow-anyone")

    def test_gpu_that_is_not_asked_for(self):
        damaged = Damaged("gpu")
        del damaged.container(WORKERS)["resources"]["limits"]["nvidia.com/gpu"]
        self.refused(damaged, WORKERS, "--device")

    def test_image_without_cuda_on_a_gpu(self):
        damaged = Damaged("gpu")
        damaged.container(WORKERS)["image"] = damaged.container(WORKERS)["image"].removesuffix("-cuda")
        self.refused(damaged, WORKERS, "--device")


class JobDamage(DamageTest):
    def test_fewer_pods_than_ranks(self):
        damaged = Damaged("base")
        damaged.pod(WORKERS).job["parallelism"] = 3
        self.refused(damaged, "JobSet/train", "--pp x --dp x --cp x --tp is 4")

    def test_pods_without_an_index(self):
        damaged = Damaged("base")
        damaged.pod(WORKERS).job["completionMode"] = "NonIndexed"
        self.refused(damaged, "JobSet/train", "no index")

    def test_rank_that_all_pods_have(self):
        damaged = Damaged("base")
        damaged.container(WORKERS)["args"].append("--rank=0")
        self.refused(damaged, WORKERS, "--rank")

    def test_halves_of_other_jobs(self):
        damaged = Damaged("base")
        damaged.replace_argument(WORKERS, "--job", "--job=other")
        self.refused(damaged, "--job: other")

    def test_half_without_tls(self):
        damaged = Damaged("base")
        arguments = damaged.container(WORKERS)["args"]
        arguments[:] = [one for one in arguments if not one.startswith("--tls")]
        self.refused(damaged, WORKERS, "no TLS")

    def test_memory_that_workers_do_not_have(self):
        damaged = Damaged("base")
        damaged.replace_argument(FEEDER, "--memory-mb", "--memory-mb=16000")
        self.refused(damaged, "--memory-mb")

    def test_wrong_request_that_is_made_again_and_again(self):
        damaged = Damaged("base")
        rules = damaged.pod(FEEDER).job["podFailurePolicy"]["rules"]
        rules[:] = [rule for rule in rules if rule["action"] != "FailJob"]
        self.refused(damaged, "podFailurePolicy")

    def test_quota_below_what_the_job_asks_for(self):
        damaged = Damaged("kueue")
        flavor = damaged.object("ClusterQueue", "penstock")["spec"]["resourceGroups"][0]["flavors"][0]
        next(one for one in flavor["resources"] if one["name"] == "nvidia.com/gpu")["nominalQuota"] = 2
        self.refused(damaged, "nvidia.com/gpu", "never be admitted")

    def test_queue_that_is_not_there(self):
        damaged = Damaged("kueue")
        damaged.object("JobSet", "train")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "fast"
        self.refused(damaged, "there is no queue fast")


class NetworkDamage(DamageTest):
    def test_address_that_no_service_has(self):
        damaged = Damaged("base")
        damaged.object("ConfigMap", "penstock-planner")["data"]["address"] = "penstock-planer:7070"
        self.refused(damaged, "--planner", "no service has the address penstock-planer:7070")

    def test_policy_that_keeps_workers_from_the_planner(self):
        damaged = Damaged("base")
        damaged.remove("NetworkPolicy", "train-calls-the-planner")
        self.refused(damaged, "no NetworkPolicy lets it reach StatefulSet/penstock-planner")

    def test_policy_that_lets_everybody_in(self):
        damaged = Damaged("ha")
        policy = damaged.object("NetworkPolicy", "planners-use-postgres")
        policy["spec"]["ingress"][0]["from"] = [{"podSelector": {}}]
        damaged.object("NetworkPolicy", "postgres-is-used")["spec"]["podSelector"] = {}
        self.refused(damaged, "reaches StatefulSet/penstock-postgres")

    def test_policy_that_keeps_workers_apart(self):
        damaged = Damaged("base")
        damaged.object("NetworkPolicy", "train-workers")["spec"]["egress"] = []
        self.refused(damaged, "do not reach each other")

    def test_certificate_for_another_address(self):
        damaged = Damaged("ha")
        damaged.object("Certificate", "penstock-planner-tls")["spec"]["dnsNames"].remove("penstock-planners")
        self.refused(damaged, "no certificate names penstock-planners")


class CertificateDamage(DamageTest):
    def test_caller_with_a_role_that_is_none(self):
        damaged = Damaged("gpu")
        damaged.object("Certificate", "penstock-client-tls")["spec"]["uris"] = ["spiffe://penstock.cluster.local/penstock/admin/team"]
        self.assertTrue([one for one in damaged.problems() if "makes no client" in one])

    def test_workers_of_another_owner(self):
        damaged = Damaged("gpu")
        damaged.object("Certificate", "penstock-worker-tls")["spec"]["uris"] = ["spiffe://penstock.cluster.local/penstock/worker/others"]
        self.refused(damaged, "workers of others may not run the jobs of team")

    def test_issuer_that_is_not_there(self):
        damaged = Damaged("gpu")
        damaged.object("Certificate", "penstock-worker-tls")["spec"]["issuerRef"]["name"] = "letsencrypt"
        self.refused(damaged, "there is no Issuer/letsencrypt")


class MonitoringDamage(unittest.TestCase):
    def test_alert_that_differs_from_those_of_deploy_prometheus(self):
        damaged = Damaged("tls and monitoring")
        self.assertEqual([], list(problems_of(damaged.cluster)))
        damaged.object("PrometheusRule", "penstock")["spec"]["groups"][-1]["rules"][0]["expr"] = "vector(0)"
        self.assertTrue(list(problems_of(damaged.cluster)))

    def test_dashboard_that_is_left_out(self):
        damaged = Damaged("tls and monitoring")
        del damaged.object("ConfigMap", "penstock-dashboards")["data"]["job.json"]
        self.assertEqual(1, len(list(problems_of(damaged.cluster))))


class NoDamage(unittest.TestCase):
    def test_nothing_is_refused(self):
        for name in ("base", "dev", "tls and monitoring", "gpu", "kueue", "ha"):
            with self.subTest(name):
                self.assertEqual([], Damaged(name).problems())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    BINARIES, KUBECTL = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
