"""cert-manager's certificates: who signs them, and whom they make of a caller."""

import re

from cluster import title

CALLER = re.compile(r"spiffe://[a-z0-9.-]+/penstock/(viewer|worker|client|operator)(?:/([\w.@-]+))?")
# By its secret: the role that its pods need.
ROLES = {"penstock-client-tls": "client", "penstock-worker-tls": "worker", "penstock-operator-tls": "operator"}


def problems(cluster):
    owners = {}
    for certificate in cluster.of_kind("Certificate"):
        spec = certificate["spec"]
        if cluster.find(spec["issuerRef"]["kind"], spec["issuerRef"]["name"]) is None:
            yield f"{title(certificate)}: issuerRef: there is no {spec['issuerRef']['kind']}/{spec['issuerRef']['name']}"
        if spec["secretName"] not in ROLES:
            continue
        caller = CALLER.fullmatch("".join(spec.get("uris", [])))
        if caller is None or caller[1] != ROLES[spec["secretName"]]:
            yield f"{title(certificate)}: uris: {spec.get('uris')} makes no {ROLES[spec['secretName']]} of its caller"
            continue
        owners[caller[1]] = caller[2]
    if owners.get("client") != owners.get("worker"):
        yield f"certificates: workers of {owners.get('worker')} may not run the jobs of {owners.get('client')}"
    for issuer in cluster.of_kind("Issuer"):
        secret = issuer["spec"].get("ca", {}).get("secretName")
        if secret and not any(one["spec"]["secretName"] == secret and one["spec"].get("isCA") for one in cluster.of_kind("Certificate")):
            yield f"{title(issuer)}: ca: nobody makes the authority {secret}"
