"""Damages to the plan of a validation (execution.md, section 16): what learns, or belongs to another plan."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Callable

from plan_reader import content_hash
from settle import settle


@dataclass(frozen=True)
class ValidationDamage:
    name: str
    change: Callable  # (schema, batch of the validation, its plan, the plan that it is in)

    def applied_to(self, schema, planned_batch):
        """A copy with the damage, in which times, predictions and hashes follow from it."""
        damaged = copy.deepcopy(planned_batch)
        self.change(schema, damaged.batch.validation, damaged.plan.validation, damaged.plan)
        settle(schema, SimpleNamespace(batch=damaged.batch.validation, plan=damaged.plan.validation))
        damaged.plan.content_hash = content_hash(schema, damaged.plan)
        return damaged


def _first(schema, plan, op):
    """The first instruction of the op, and its program."""
    number = schema.enums["Op"][f"OP_{op}"]
    return next((program, item) for program in plan.programs for item in program.instructions if item.op == number)


def _backward_pass(schema, _, plan, __):
    _first(schema, plan, "FORWARD")[1].op = schema.enums["Op"]["OP_BACKWARD"]


def _update(schema, _, plan, training):
    """Behind all else, as a training plan has it."""
    step = copy.deepcopy(_first(schema, training, "OPTIMIZER_STEP")[1])
    program = plan.programs[0]
    step.id, step.deps = len(program.instructions), []
    program.instructions.append(step)


def _keeps_a_byte(schema, _, plan, __):
    _first(schema, plan, "FORWARD")[1].memory_released_bytes -= 1


def _takes_what_training_keeps(schema, _, plan, training):
    trained, own = (_first(schema, of, "FORWARD")[1] for of in (training, plan))
    own.memory_acquired_bytes += trained.memory_acquired_bytes
    own.memory_released_bytes += trained.memory_acquired_bytes


def _recomputes(_, __, plan, ___):
    micro_batch = next(item for replica in plan.replicas for item in replica.micro_batches)
    micro_batch.recompute[0].full_layers = 1


def _set(name, value):
    def change(_, __, plan, ___):
        setattr(plan, name, value)

    return change


def _of_another_iteration(_, batch, plan, __):
    batch.iteration = plan.iteration = plan.iteration + 1


def _sample_twice(_, __, plan, ___):
    micro_batch = next(item for replica in plan.replicas for item in replica.micro_batches if len(item.samples) > 1)
    micro_batch.samples[0] = micro_batch.samples[1]


VALIDATION_DAMAGES = [
    ValidationDamage("a backward pass", _backward_pass),
    ValidationDamage("an update", _update),
    ValidationDamage("a byte that is never given back", _keeps_a_byte),
    ValidationDamage("what training keeps", _takes_what_training_keeps),
    ValidationDamage("layers recomputed", _recomputes),
    ValidationDamage("a schedule", _set("schedule", 3)),
    ValidationDamage("not forward only", _set("forward_only", False)),
    ValidationDamage("of another job", _set("job_id", "other")),
    ValidationDamage("of another iteration", _of_another_iteration),
    ValidationDamage("of another version", _set("plan_version", 2)),
    ValidationDamage("a sample twice", _sample_twice),
]
