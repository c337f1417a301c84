"""Plans from Penstock's planner.

    client = penstock.Client("127.0.0.1:7070")
    plan = client.plan([900, 120, 3000], profile="gpt_7b.json", pp=4, dp=2)
    for replica in plan.replicas:
        for micro_batch in replica:
            print(micro_batch.samples, plan.predicted_seconds, plan.gap)

What needs gRPC or numpy is imported when it is first used, so that penstock.adapters do without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.async_client import AsyncClient as AsyncClient
    from penstock.async_job import AsyncJob as AsyncJob
    from penstock.channel import Security as Security
    from penstock.client import Client as Client
    from penstock.errors import PenstockError as PenstockError
    from penstock.job import Job as Job
    from penstock.job_messages import MeasuredInstruction as MeasuredInstruction
    from penstock.job_messages import MeasuredValidation as MeasuredValidation
    from penstock.job_messages import RankProgram as RankProgram
    from penstock.job_messages import ValidatedBatch as ValidatedBatch
    from penstock.local_planner import local as local
    from penstock.measured import MeasuredPass as MeasuredPass
    from penstock.measured import Revision as Revision
    from penstock.plan import MicroBatch as MicroBatch
    from penstock.plan import Plan as Plan
    from penstock.plan import Span as Span
    from penstock.sampler import PlannedBatchSampler as PlannedBatchSampler
    from penstock.shares import RankShare as RankShare
    from penstock.shares import share_of as share_of
    from penstock.shares import share_of_micro_batch as share_of_micro_batch

_MODULES = {
    "AsyncClient": "async_client",
    "AsyncJob": "async_job",
    "Client": "client",
    "Job": "job",
    "MeasuredInstruction": "job_messages",
    "MeasuredPass": "measured",
    "MeasuredValidation": "job_messages",
    "MicroBatch": "plan",
    "PenstockError": "errors",
    "Plan": "plan",
    "PlannedBatchSampler": "sampler",
    "RankProgram": "job_messages",
    "RankShare": "shares",
    "Revision": "measured",
    "Security": "channel",
    "Span": "plan",
    "ValidatedBatch": "job_messages",
    "local": "local_planner",
    "share_of": "shares",
    "share_of_micro_batch": "shares",
}

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Job",
    "MeasuredInstruction",
    "MeasuredPass",
    "MeasuredValidation",
    "MicroBatch",
    "PenstockError",
    "Plan",
    "PlannedBatchSampler",
    "RankProgram",
    "RankShare",
    "Revision",
    "Security",
    "Span",
    "ValidatedBatch",
    "local",
    "share_of",
    "share_of_micro_batch",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(f"penstock.{_MODULES[name]}"), name)
