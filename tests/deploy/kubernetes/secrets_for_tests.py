"""The secrets that an installation's pods mount, made with deploy/certs: cert-manager's part, or the user's."""

import subprocess

from certificates import CALLER, ROLES
from installations import ROOT

PASSWORD = "of the database"
OWNER = "team"


def _certs(folder, *words):
    subprocess.run([ROOT / "deploy/certs", folder, *words], check=True, capture_output=True, timeout=60)


def _as_secret(folder, name):
    return {"tls.crt": (folder / f"{name}.crt").read_text(), "tls.key": (folder / f"{name}.key").read_text(),
            "ca.crt": (folder / "ca.crt").read_text()}


def _owner(cluster, role):
    """That overlays/tls puts into the certificate of a role."""
    for certificate in cluster.of_kind("Certificate"):
        caller = CALLER.fullmatch("".join(certificate["spec"].get("uris", [])))
        if caller and caller[1] == role:
            return caller[2]
    return OWNER


def make(cluster, folder):
    planners = [one["spec"]["dnsNames"] for one in cluster.of_kind("Certificate") if "dnsNames" in one["spec"]]
    _certs(folder, *(name for names in planners for name in names))
    secrets = {"penstock-planner-tls": _as_secret(folder, "planner"), "penstock-postgres": {"password": PASSWORD}}
    for secret, role in ROLES.items():
        owner = _owner(cluster, role)
        _certs(folder, "--caller", role, *([owner] if owner else []))
        secrets[secret] = _as_secret(folder, f"{role}-{owner}" if owner else role)
    return secrets
