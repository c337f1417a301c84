"""What follows from a plan that was changed, so that nothing but the change is wrong in it."""

from execution import times
from memory import largest_account
from plan_reader import content_hash
from predictions import Predictor
from reading import Reading
from report import Report
from rules import check_transfers
from structure import check_structure


def settle(schema, planned_batch):
    """Sets start times, predictions and hash to what follows from the durations, deps and bytes that the plan states."""
    plan = planned_batch.plan
    if check_structure(schema, planned_batch, Report()):
        reading = Reading(schema, planned_batch)
        met = check_transfers(reading, Report())
        if met is not None:
            _set_times(reading, *met)
    plan.content_hash = content_hash(schema, plan)


def _set_times(reading, meetings, senders):
    """Leaves them as they are where some instructions can never start."""
    durations = [[item.expected_duration_ns for item in program.instructions] for program in reading.programs]
    settled = times(reading.programs, meetings, durations)
    if settled is None:
        return
    for rank, item in reading.instructions():
        item.expected_start_ns = settled.start[rank][item.id]
    own = [
        [item.own_duration_ns if reading.is_joint(rank, item) else item.expected_duration_ns for item in program.instructions]
        for rank, program in enumerate(reading.programs)
    ]
    _set_predictions(reading, Predictor(reading, settled, own, senders))


def _set_predictions(reading, predictor):
    predicted = reading.plan.predicted
    predicted.makespan_ns, predicted.last_backward_ns = predictor.makespan_ns(), predictor.last_backward_ns()
    reading.plan.lower_bound_ns = min(reading.plan.lower_bound_ns, predicted.makespan_ns)
    for rank, stated in enumerate(predicted.ranks):
        stated.peak_memory_bytes, stated.peak_instruction, _ = largest_account(reading.programs[rank])
        stated.bubble = stated.bubble or reading.schema.message("Bubble")
        for name, value in vars(predictor.waits(rank)).items():
            setattr(stated if name == "busy_ns" else stated.bubble, name, value)
