"""All checks of one installation."""

import certificates
import command_lines
import hardening
import jobs
import network
import references
import schemas
from cluster import Cluster


def problems(objects, binaries):
    found = list(schemas.problems(objects))
    # What is below takes the shape of objects for granted.
    if found:
        return found
    cluster = Cluster(objects)
    for check in (references, hardening, jobs, network, certificates):
        found += check.problems(cluster)
    return found + list(command_lines.problems(cluster, binaries))
