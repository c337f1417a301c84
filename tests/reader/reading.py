"""A plan with what is asked of it often: names of ops, keys of instructions, samples, token sums."""

from collections import namedtuple

from token_sums import token_sums
from memory_units import ELEMENT_BYTES
from shares import shares_of
from world import World

PASSES = ("FORWARD", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT")

# The name of an instruction on its rank.
Key = namedtuple("Key", "op stage micro_batch part")


class Reading:
    """A PlannedBatch whose structure holds (structure.py)."""

    def __init__(self, schema, planned_batch):
        self.schema = schema
        self.samples = planned_batch.batch.samples
        self.plan = planned_batch.plan
        self.programs = self.plan.programs
        # Passes are FORWARD alone: the plan of a validation (section 16).
        self.forward_only = self.plan.forward_only
        self.is_t5 = self.plan.model.architecture == schema.enums["Architecture"]["ARCHITECTURE_T5"]
        self.options = self.plan.options or schema.message("PlanningOptions")
        self.dtype = schema.enum_name("DataType", self.plan.model.dtype)
        self.world = World(self.plan, self.is_t5, ELEMENT_BYTES.get(self.dtype, 0))
        self._op_names = {number: schema.enum_name("Op", number) for number in schema.enums["Op"].values()}
        self.by_key = [{self.key(item): item for item in program.instructions} for program in self.programs]
        self._shares = [
            [shares_of(self, item, self.world.pipeline_of_replica(number)) for item in replica.micro_batches]
            for number, replica in enumerate(self.plan.replicas)
        ]
        self._sums = [
            [token_sums(self.is_t5, self.layout(item) == "PACKED", item, self.samples, self.plan.model) for item in replica.micro_batches]
            for replica in self.plan.replicas
        ]

    def op(self, instruction):
        return self._op_names.get(instruction.op, str(instruction.op))

    def key(self, instruction):
        return Key(self.op(instruction), instruction.stage, instruction.micro_batch, instruction.part)

    def layout(self, micro_batch):
        return self.schema.enum_name("Layout", micro_batch.layout)

    def stream(self, instruction):
        return self.schema.enum_name("Stream", instruction.stream)

    def pipeline_of(self, rank):
        """That of the rank's mesh."""
        return self.world.pipeline_of(rank)

    def replica_of(self, rank):
        return self.pipeline_of(rank).replica_of(rank)

    def micro_batches(self, rank):
        return self.plan.replicas[self.replica_of(rank)].micro_batches

    def sums(self, replica, index):
        """Token sums of a whole micro-batch."""
        return self._sums[replica][index]

    def share(self, replica, index, context):
        """The Share of a context rank."""
        return self._shares[replica][index][context]

    def is_joint(self, rank, instruction):
        """Whether the passes of a stage group are collectives."""
        return self.pipeline_of(rank).group_size > 1 and self.op(instruction) in PASSES

    def instructions(self):
        """(rank, instruction), all of them."""
        for rank, program in enumerate(self.programs):
            for instruction in program.instructions:
                yield rank, instruction

    def place(self, rank, instruction):
        """Names an instruction in a message."""
        return (
            f"rank {rank}, instruction {instruction.id} ({self.op(instruction)} stage {instruction.stage} "
            f"micro-batch {instruction.micro_batch} part {instruction.part})"
        )
