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


def bounds_of(micro_batch):
    """[(row, chunk)] where parts begin and the last one ends; of chunks that are not stated the first."""
    chunks = micro_batch.part_chunks or [0] * len(micro_batch.part_rows)
    return list(zip(micro_batch.part_rows, chunks))


def divides(bounds, rows):
    """Whether these places cut so many rows into several parts, none of them empty."""
    if len(bounds) <= FEWEST_PARTS or bounds[0] != (0, 0) or bounds[-1] != (rows, 0):
        return False
    return all(before < after for before, after in zip(bounds, bounds[1:]))


def may_begin(micro_batch, row, chunk):
    """Whether a part may begin with this chunk of a row: with the first, or inside of a row that is divided."""
    if chunk == 0:
        return True
    ranks = micro_batch.span_ranks[row] if row < len(micro_batch.span_ranks) else 1
    return ranks > 1 and chunk < 2 * ranks


def _are_sound(micro_batch, rows):
    if micro_batch.part_chunks and len(micro_batch.part_chunks) != len(micro_batch.part_rows):
        return False
    bounds = bounds_of(micro_batch)
    return divides(bounds, rows) and all(may_begin(micro_batch, *bound) for bound in bounds)


def chunks_of_parts(reading, micro_batch, pipeline):
    """{row: (first chunk, chunk behind the last one or None)} of each part; none of a micro-batch that stays whole, and of one
    that breaks rule 7."""
    rows = row_count(reading.layout(micro_batch) == "PACKED", micro_batch)
    if not may_have_parts(pipeline) or not _are_sound(micro_batch, rows):
        return []
    bounds = bounds_of(micro_batch)
    return [_rows_between(*both) for both in zip(bounds, bounds[1:])]


def _rows_between(begin, end):
    rows = range(begin[0], end[0] + (end[1] > 0))
    return {row: (begin[1] if row == begin[0] else 0, end[1] if row == end[0] else None) for row in rows}


def cut_rows(micro_batch):
    """Rows inside of which parts begin."""
    return {row for row, chunk in bounds_of(micro_batch) if chunk > 0}


def check_parts(reading, micro_batch, pipeline, place, report):
    """Rule 7 of `part_rows`."""
    bounds = micro_batch.part_rows
    report.require("rule 7", place, bounds or not micro_batch.part_chunks, "part_chunks is set without part_rows")
    if micro_batch.whole_backward:
        may_be = bounds and may_go_back_whole(pipeline)
        report.require("rule 7", place, may_be, "whole_backward is set: without parts, or of tokens that tensor ranks divide")
    if not bounds:
        return
    rows = row_count(reading.layout(micro_batch) == "PACKED", micro_batch)
    report.require("rule 7", place, may_have_parts(pipeline), "it has parts, and no ranks divide the experts")
    chunks = micro_batch.part_chunks
    report.require("rule 7", place, _are_sound(micro_batch, rows), f"part_rows {bounds} and part_chunks {chunks} do not divide its {rows} rows")
    if chunks:
        may_be = micro_batch.whole_backward and not reading.plan.model.expert_capacity_factor and any(chunks)
        report.require("rule 7", place, may_be, "part_chunks is set: without a cut, behind a backward pass in parts, or of experts with a capacity")


def check_most_parts(reading, report):
    """The plan has no more parts than its options allow, and these no more than a job may have."""
    most = reading.options.most_parts
    report.require("origin", "options", most <= MOST_PARTS, f"most_parts is {most}")
    for replica, messages in enumerate(reading.plan.replicas):
        for index, item in enumerate(messages.micro_batches):
            parts = max(1, len(item.part_rows) - 1)
            holds = parts <= (most or MOST_PARTS)
            report.require("origin", f"replica {replica}, micro-batch {index}", holds, f"it has {parts} parts, most_parts is {most}")
