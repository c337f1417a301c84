"""What a planner's statuses are in Python: one exception for each status code, all of them PenstockErrors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import grpc

# "job.mesh: 4 x 3 are ...", "batches[1].samples[3] is ...", and, of requests without parts, "rank: ..." and "iteration 3 is ..."
_FIELD = re.compile(
    r"((?:job|batch|batches|passes|instructions)(?:\.[a-z_][a-z0-9_]*|\[\d+\])+)"
    r"|([a-z_][a-z0-9_]*): "
    r"|(rank|iteration) (?:\d+ )?(?:is|was) "
)
# "job 'mix' is finished"
_JOB = re.compile(r"job '[^']*' ")


def field_of(message: str) -> str:
    """The field of a request that a planner's message begins with; "": none."""
    if _JOB.match(message):
        return "job_id"
    found = _FIELD.match(message)
    return next(filter(None, found.groups()), "") if found else ""


class PenstockError(Exception):
    """A call that failed. `code`: the status; `message`: what the planner said; `field`: the field that it names first, or
    "" where it names none; `retry_iteration`: see ResourceExhausted."""

    def __init__(self, code: grpc.StatusCode, message: str, retry_iteration: int | None = None) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.retry_iteration = retry_iteration
        self.field = field_of(message)


class InvalidArgument(PenstockError, ValueError):
    """A field of the request is wrong."""


class NotFound(PenstockError, LookupError):
    """No such job."""


class AlreadyExists(PenstockError):
    """The same name or iteration is there with other content."""


class ResourceExhausted(PenstockError):
    """No plan fits in memory, the queue is full, or an iteration is beyond the window: try from `retry_iteration`."""


class FailedPrecondition(PenstockError):
    """The job is not in a state for that."""


class Aborted(PenstockError):
    """A stale incarnation or epoch."""


class OutOfRange(PenstockError, LookupError):
    """The iteration is not held any more."""


class DeadlineExceeded(PenstockError, TimeoutError):
    """No answer in time."""


class Unavailable(PenstockError, ConnectionError):
    """No planner could be reached until the deadline."""


class Unauthenticated(PenstockError, PermissionError):
    """The planner asks for a token or a certificate that it knows."""


class PermissionDenied(PenstockError, PermissionError):
    """The planner knows the caller, who may not do that."""


class Unimplemented(PenstockError):
    """The planner is older than this client."""


class Internal(PenstockError):
    """A fault of the planner."""


_CLASSES: dict[grpc.StatusCode, type[PenstockError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    # A planner that stops ends calls so (planner_service.proto); this client cancels none.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: Internal,
}


# grpc's, or None.
Metadata = Iterable[tuple[str, str | bytes]] | None


def standby_of(trailing: Metadata) -> Unavailable | None:
    """For an answer that a planner read from the store which does not lead: who acts on it needs the leader's. None: it leads."""
    said = {key: str(value) for key, value in trailing or ()}
    if "penstock-standby-age-ms" not in said:
        return None
    leader = said.get("penstock-standby", "")
    who = f"'{leader}' leads" if leader else "nobody is known to lead"
    return Unavailable(grpc.StatusCode.UNAVAILABLE, f"this planner is a standby: {who}")


def error_of(error: grpc.RpcError) -> PenstockError:
    """The exception for a call's end."""
    code: grpc.StatusCode = error.code()
    retry = None
    trailing = cast("Metadata", error.trailing_metadata())
    if (standby := standby_of(trailing)) is not None:
        return standby
    for key, value in trailing or ():
        if key == "penstock-retry-iteration" and str(value).isdigit():
            retry = int(value)
    return _CLASSES.get(code, PenstockError)(code, error.details() or "", retry)
