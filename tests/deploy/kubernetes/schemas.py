"""Objects against the published schemas: Kubernetes' own (PyPI's kubernetes-validate), and those of custom resources."""

import copy
import functools
import json
import pathlib

import jsonschema
import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).resolve().parent / "custom_resources"
# The oldest Kubernetes on which all of it is, and the newest that is known here.
VERSIONS = ("1.29.0", kubernetes_validate.latest_version())


@functools.cache
def custom_resources():
    """By kind: its apiVersion and the schema of its spec."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yaml")}


def _place(path):
    return ".".join(str(part) for part in path)


@functools.cache
def _judged(text, title):
    """Of an object as JSON: validating takes long, and most objects are seen many times."""
    return tuple(_problems_of_kubernetes_own(json.loads(text), title))


def _problems_of_kubernetes_own(an_object, title):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(an_object, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{title}: {_place(error.path)}: {error.message.splitlines()[0][:200]} (Kubernetes {version})"
        except kubernetes_validate.SchemaNotFoundError:
            yield f"{title}: Kubernetes {version} has no {an_object['apiVersion']} {an_object['kind']}"


def _problems_of_custom_resource(an_object, title):
    known = custom_resources()[an_object["kind"]]
    if an_object["apiVersion"] != known["apiVersion"]:
        yield f"{title}: apiVersion: {an_object['apiVersion']} is not {known['apiVersion']}"
    for extra in sorted(set(an_object) - {"apiVersion", "kind", "metadata", "spec"}):
        yield f"{title}: {extra}: there is no such field"
    for error in jsonschema.Draft7Validator(known["spec"]).iter_errors(an_object.get("spec", {})):
        yield f"{title}: spec.{_place(error.path)}: {error.message[:200]}"


def _job_of(an_object, part):
    """What the JobSet's controller makes of one of its parts."""
    metadata = {"name": f"{an_object['metadata']['name']}-{part['name']}", "namespace": an_object["metadata"].get("namespace", "")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **copy.deepcopy(part["template"])}


def problems(objects):
    for an_object in objects:
        title = f"{an_object.get('kind')}/{an_object.get('metadata', {}).get('name')}"
        if an_object.get("kind") not in custom_resources():
            yield from _judged(json.dumps(an_object), title)
            continue
        yield from _problems_of_custom_resource(an_object, title)
        if an_object["kind"] == "JobSet":
            for part in an_object["spec"].get("replicatedJobs", []):
                yield from _judged(json.dumps(_job_of(an_object, part)), f"{title}, {part.get('name')}")
