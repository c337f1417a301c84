"""The parts in which passes go through a micro-batch: which rows are whose (execution.md, section 7), and what plans may have them (12)."""

FEWEST_PARTS = 2
# Of all jobs, and of those whose options do not say.
MOST_PARTS = 4


def may_have_parts(pipeline):
    """Rows of one part travel while another is computed: to ranks that divide the experts."""
    return pipeline.experts > 1


def may_go_back_whole(pipeline):
    """Behind a forward pass in parts: tensor ranks would have other rows of the whole."""
    return may_have_parts(pipeline) and pipeline.tensors == 1


def row_count(is_packed, micro_batch):
    return len(micro_batch.samples) if is_packed else micro_batch.rows


def divides(bounds, rows):
    """Whether these cumulative numbers of rows cut so many rows into several parts, none of them empty."""
    if len(bounds) <= FEWEST_PARTS or bounds[0] != 0 or bounds[-1] != rows:
        return False
    return all(before < after for before, after in zip(bounds, bounds[1:]))


def rows_of_parts(reading, micro_batch, pipeline):
    """The range of rows of each part; none of a micro-batch that stays whole, and of one that breaks rule 7."""
    bounds = micro_batch.part_rows
    rows = row_count(reading.layout(micro_batch) == "PACKED", micro_batch)
    if not may_have_parts(pipeline) or not divides(bounds, rows):
        return []
    return [range(first, last) for first, last in zip(bounds, bounds[1:])]


def check_parts(reading, micro_batch, pipeline, place, report):
    """Rule 7 of `part_rows`."""
    bounds = micro_batch.part_rows
    if micro_batch.whole_backward:
        may_be = bounds and may_go_back_whole(pipeline) and not reading.forward_only
        report.require("rule 7", place, may_be, "whole_backward is set: of a pass forward alone, without parts, or of tokens that tensor ranks divide")
    if not bounds:
        return
    rows = row_count(reading.layout(micro_batch) == "PACKED", micro_batch)
    report.require("rule 7", place, may_have_parts(pipeline), "it has parts, and no ranks divide the experts")
    report.require("rule 7", place, divides(bounds, rows), f"part_rows {bounds} do not divide its {rows} rows")


def check_most_parts(reading, report):
    """The plan has no more parts than its options allow, and these no more than a job may have."""
    most = reading.options.most_parts
    report.require("origin", "options", most <= MOST_PARTS, f"most_parts is {most}")
    for replica, messages in enumerate(reading.plan.replicas):
        for index, item in enumerate(messages.micro_batches):
            parts = max(1, len(item.part_rows) - 1)
            holds = parts <= (most or MOST_PARTS)
            report.require("origin", f"replica {replica}, micro-batch {index}", holds, f"it has {parts} parts, most_parts is {most}")
