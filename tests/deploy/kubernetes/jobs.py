"""What the two halves of a job must agree on, and the queue that admits it."""

from math import prod

from cluster import name_of, title
from command_lines import CommandLine, size


def _parts(job_set):
    """By the name of the part: its Job's spec, container and command line."""
    parts = {}
    for part in job_set["spec"]["replicatedJobs"]:
        container = part["template"]["spec"]["template"]["spec"]["containers"][0]
        parts[part["name"]] = (part, part["template"]["spec"], container, CommandLine(container))
    return parts


def _ranks(feeder, part, job):
    ranks = prod(int(feeder.flags.get(degree, 1)) for degree in ("--pp", "--dp", "--cp", "--tp"))
    if not ranks == job["parallelism"] == job["completions"]:
        yield f"workers: {job['parallelism']} at a time, {job['completions']} in all, where --pp x --dp x --cp x --tp is {ranks}"
    if job.get("completionMode") != "Indexed" or part.get("replicas", 1) != 1:
        yield "workers: no index that is each pod's own, which is its rank"


def _agreement(feeder, worker, container):
    if feeder.flags.get("--job-id") != worker.flags.get("--job"):
        yield f"--job: {worker.flags.get('--job')} is not the feeder's --job-id, {feeder.flags.get('--job-id')}"
    for flag in ("--dataset", "--planner"):
        if feeder.flags.get(flag) != worker.flags.get(flag):
            yield f"{flag}: {worker.flags.get(flag)} is not the feeder's"
    simulated = feeder.flags.get("--device") == "simulated"
    if simulated != (worker.flags.get("--device") == "simulated"):
        yield "--device: one half is simulated"
    planned = int(feeder.flags["--memory-mb"]) << 20
    if worker.flags.get("--device") == "cpu" and planned > size(container["resources"]["limits"]["memory"]) * 3 / 4:
        yield "--memory-mb: too near to the workers' limit of memory"
    if "--checkpoint-every" in feeder.flags and not {"--checkpoint-dir", "--resume"} <= set(worker.flags):
        yield "--checkpoint-every: workers have no --checkpoint-dir, or do not --resume"


def _failures(name, job):
    """A pod that was moved is no failure, and one that was asked wrongly is not asked again."""
    rules = job.get("podFailurePolicy", {}).get("rules", [])
    moved = any(rule["action"] == "Ignore" and rule.get("onPodConditions", [{}])[0].get("type") == "DisruptionTarget" for rule in rules)
    wrong = any(rule["action"] == "FailJob" and rule.get("onExitCodes", {}).get("values") == [2] for rule in rules)
    if not moved or not wrong:
        yield f"{name}: podFailurePolicy: exit status 2 does not end the job, or a pod that is moved counts as a failure"
    if job["template"]["spec"].get("restartPolicy") != "Never":
        yield f"{name}: restartPolicy: a podFailurePolicy asks for Never"


def _job_set(job_set):
    parts = _parts(job_set)
    for name in job_set["spec"].get("successPolicy", {}).get("targetReplicatedJobs", []):
        if name not in parts:
            yield f"successPolicy: there is no {name}"
    part, job, container, worker = parts["workers"]
    feeder = parts["feeder"][3]
    yield from _ranks(feeder, part, job)
    yield from _agreement(feeder, worker, container)
    for name, (_, job, _, _) in parts.items():
        yield from _failures(name, job)


def _security(cluster):
    """Callers speak TLS where planners do."""
    lines = [CommandLine(pods.container()) for pods in cluster.pods()]
    planners = {"--tls-cert" in line.flags for line in lines if line.program == "penstock-planner"}
    for pods, line in zip(cluster.pods(), lines):
        encrypted = {"--tls-ca", "--tls-cert", "--tls-key"} <= set(line.flags)
        if line.is_penstock() and "--planner" in line.flags and planners != {encrypted}:
            yield f"{pods.place}: --tls-ca: {'TLS' if encrypted else 'no TLS'}, other than the planner"


def _requested(job_set):
    """Of all its pods, by resource."""
    total = {}
    for part in job_set["spec"]["replicatedJobs"]:
        job = part["template"]["spec"]
        for resource, amount in job["template"]["spec"]["containers"][0]["resources"]["requests"].items():
            total[resource] = total.get(resource, 0) + job["parallelism"] * _amount(amount)
    return total


def _amount(text):
    text = str(text)
    return int(text[:-1]) / 1000 if text.endswith("m") else size(text)


def _queue(cluster, job_set):
    name = job_set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    local = cluster.find("LocalQueue", name)
    queue = local and cluster.find("ClusterQueue", local["spec"]["clusterQueue"])
    if not queue:
        yield f"there is no queue {name}"
        return
    quotas = {}
    for group in queue["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            if cluster.find("ResourceFlavor", flavor["name"]) is None:
                yield f"{title(queue)}: there is no ResourceFlavor {flavor['name']}"
            if [one["name"] for one in flavor["resources"]] != group["coveredResources"]:
                yield f"{title(queue)}: {flavor['name']}: resources are not coveredResources, in their order"
            quotas |= {one["name"]: _amount(one["nominalQuota"]) for one in flavor["resources"]}
    for resource, amount in _requested(job_set).items():
        if amount > quotas.get(resource, 0):
            yield f"{title(queue)}: {resource}: {amount} asked for, of {quotas.get(resource, 0)}: would never be admitted"


def problems(cluster):
    yield from _security(cluster)
    for job_set in cluster.of_kind("JobSet"):
        found = [*_job_set(job_set)]
        if "kueue.x-k8s.io/queue-name" in job_set["metadata"].get("labels", {}):
            found += _queue(cluster, job_set)
        yield from (f"{title(job_set)}: {problem}" for problem in found)
        if name_of(job_set) not in {pods.labels.get("app.kubernetes.io/instance") for pods in cluster.pods()}:
            yield f"{title(job_set)}: app.kubernetes.io/instance: its pods have another, which its policies ask for"
