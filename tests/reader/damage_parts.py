"""Damages to plans whose micro-batches are cut into parts (MicroBatch.part_rows), and to plans that must not have any."""

from damage import Damage, Inapplicable
from meshes import placed_meshes
from parts import MOST_PARTS, bounds_of, row_count


def _cut_micro_batch(editor, accept=lambda bounds: True):
    """(number of its replica, its number, the micro-batch): the first that is in parts of whole rows and accepted."""
    for number, replica in enumerate(editor.plan.replicas):
        for index, item in enumerate(replica.micro_batches):
            if item.part_rows and not item.part_chunks and accept(item.part_rows):
                return number, index, item
    raise Inapplicable("parts")


def _on_bounds(change, accept=lambda bounds: True):
    """Changes the part_rows of a micro-batch."""

    def apply(editor):
        change(_cut_micro_batch(editor, accept)[2].part_rows)

    return apply


def _first_row_in_no_part(bounds):
    bounds[0] = 1


def _last_row_in_no_part(bounds):
    bounds[-1] -= 1


def _row_that_is_not_there(bounds):
    bounds[-1] += 1


def _empty_part(bounds):
    bounds.insert(1, bounds[1])


def _descending(bounds):
    bounds.insert(1, bounds[-1])


def _one_part(bounds):
    del bounds[1:-1]


def _whole(bounds):
    bounds.clear()


def _several_rows(bounds):
    """The first part can lose one."""
    return bounds[1] > 1


def _moved_row(bounds):
    bounds[1] -= 1


def _one_more_part(bounds):
    bounds.insert(1, 1)


def _cut_where(accept):
    """Cuts a micro-batch of a mesh that is accepted behind its first row."""

    def apply(editor):
        for placed in placed_meshes(editor.plan):
            for replica in placed.replicas if accept(placed) else []:
                for item in editor.plan.replicas[replica].micro_batches:
                    is_packed = editor.schema.enum_name("Layout", item.layout) == "PACKED"
                    rows = row_count(is_packed, item)
                    if rows > 1:
                        item.part_rows = [0, 1, rows]
                        return
        raise Inapplicable("a mesh without parts")

    return apply


def _no_expert_ranks(placed):
    return placed.experts == 1 and placed.group_size > 1


def _one_rank_alone(placed):
    return placed.group_size == 1


def _on_pass(op, field, change):
    """Changes a number of the exchange of a pass of a micro-batch in parts."""

    def apply(editor):
        replica, index, _ = _cut_micro_batch(editor)
        for program in editor.plan.programs:
            for item in program.instructions if program.replica == replica else []:
                if editor.op(item) == op and item.micro_batch == index and item.exchange is not None:
                    setattr(item.exchange, field, change(getattr(item.exchange, field)))
                    return
        raise Inapplicable(op)

    return apply


def _one_more(number):
    return number + 1


def _one_less(number):
    if number == 0:
        raise Inapplicable("a number above 0")
    return number - 1


def _yes(_):
    return True


def _set_whole_backward(value, accept, what):
    """Of the first micro-batch that is accepted."""

    def apply(editor):
        for replica in editor.plan.replicas:
            for item in replica.micro_batches:
                if accept(item):
                    item.whole_backward = value
                    return
        raise Inapplicable(what)

    return apply


_no_whole_backward = _set_whole_backward(False, lambda item: item.whole_backward, "a whole backward pass")
# Of a micro-batch whose backward passes go in parts, too.
_whole_backward = _set_whole_backward(True, lambda item: item.part_rows and not item.whole_backward, "a backward pass in parts")
_whole_backward_without_parts = _set_whole_backward(True, lambda item: not item.part_rows, "a whole micro-batch")


def _whole_backward_where(accept):
    """Of a micro-batch in parts of a mesh that is accepted."""

    def apply(editor):
        for placed in placed_meshes(editor.plan):
            for replica in placed.replicas if accept(placed) else []:
                for item in editor.plan.replicas[replica].micro_batches:
                    if item.part_rows:
                        item.whole_backward = True
                        return
        raise Inapplicable("parts on such a mesh")

    return apply


def _tensor_ranks(placed):
    return placed.tensors > 1


def _on_cut(change):
    """Changes a micro-batch whose parts begin inside of rows."""

    def apply(editor):
        for replica in editor.plan.replicas:
            for item in replica.micro_batches:
                if item.part_chunks:
                    change(item)
                    return
        raise Inapplicable("a row that is cut")

    return apply


def _first_cut(item):
    """(its place among the bounds, ranks of the row)"""
    place = next(place for place, chunk in enumerate(item.part_chunks) if chunk > 0)
    return place, item.span_ranks[item.part_rows[place]]


def _chunk_that_is_not_there(item):
    place, ranks = _first_cut(item)
    item.part_chunks[place] = 2 * ranks


def _other_chunk(item):
    place, ranks = _first_cut(item)
    chunk = item.part_chunks[place]
    item.part_chunks[place] = chunk - 1 if chunk > 1 else chunk + 1
    if not all(before < after for before, after in zip(bounds_of(item), bounds_of(item)[1:])) or item.part_chunks[place] >= 2 * ranks:
        raise Inapplicable("room for another chunk")


def _begins_with_a_chunk(item):
    item.part_chunks[0] = 1


def _ends_with_a_chunk(item):
    item.part_chunks[-1] = 1


def _empty_part_of_chunks(item):
    place, _ = _first_cut(item)
    for values in (item.part_rows, item.part_chunks):
        values.insert(place, values[place])


def _one_chunk_less(item):
    item.part_chunks.pop()


def _no_cut(item):
    item.part_chunks = [0] * len(item.part_chunks)


def _chunks_without_parts(item):
    item.part_rows, item.whole_backward = [], False


def _cut_but_not_whole(item):
    item.whole_backward = False


def _not_stated(item):
    rows = [row for row, chunk in bounds_of(item) if chunk == 0]
    item.part_rows, item.part_chunks = rows if len(rows) > 2 else [], []
    item.whole_backward = bool(item.part_rows)


def _row_that_is_not_divided(item):
    """But lies on one rank."""
    place, _ = _first_cut(item)
    item.span_ranks[item.part_rows[place]] = 1


def _capacity(editor):
    _on_cut(lambda item: None)(editor)
    editor.plan.model.expert_capacity_factor = 1.25


def _fewer_parts_allowed(parts):
    """A micro-batch has so many parts, and the options allow one less."""

    def apply(editor):
        _cut_micro_batch(editor, lambda bounds: len(bounds) == parts + 1)
        editor.plan.options.most_parts = parts - 1

    return apply


def _more_than_a_job_may_have(editor):
    editor.plan.options.most_parts = MOST_PARTS + 1


DAMAGES_TO_PARTS = [
    Damage(name, topics, change)
    for name, topics, change in (
        ("parts that begin with the second row", ["rule 7"], _on_bounds(_first_row_in_no_part)),
        ("parts that end before the last row", ["rule 7"], _on_bounds(_last_row_in_no_part, lambda bounds: bounds[-1] - bounds[-2] > 1)),
        ("parts of more rows than there are", ["rule 7"], _on_bounds(_row_that_is_not_there)),
        ("an empty part", ["rule 7"], _on_bounds(_empty_part)),
        ("parts that descend", ["rule 7"], _on_bounds(_descending)),
        ("one part", ["rule 7"], _on_bounds(_one_part)),
        ("parts where no ranks divide the experts", ["rule 7"], _cut_where(_no_expert_ranks)),
        ("parts of ranks that run passes alone", ["rule 7"], _cut_where(_one_rank_alone)),
        ("parts that are not stated", ["durations", "exchange"], _on_bounds(_whole)),
        ("a row of another part", ["durations", "exchange"], _on_bounds(_moved_row, _several_rows)),
        ("a part cut in two", ["durations", "exchange"], _on_bounds(_one_more_part, _several_rows)),
        ("products beside the return of a part's rows", ["exchange"], _on_pass("BACKWARD", "products_beside_return", _one_more)),
        ("products beside the arrival of a part's rows", ["exchange"], _on_pass("BACKWARD_INPUT", "products_beside_arrival", _one_more)),
        ("other products beside the arrival of a part's rows", ["exchange"], _on_pass("BACKWARD", "others_beside_arrival", _yes)),
        ("bytes of a part's rows", ["exchange"], _on_pass("FORWARD", "expert_bytes", _one_more)),
        ("time of a part's rows", ["exchange"], _on_pass("FORWARD", "expert_ns", _one_more)),
        ("waiting for a part's rows", ["exchange"], _on_pass("FORWARD", "expert_exposed_ns", _one_less)),
        ("waiting for a part's gradients", ["exchange"], _on_pass("BACKWARD", "expert_exposed_ns", _one_less)),
        ("waiting for a part's gradients, split", ["exchange"], _on_pass("BACKWARD_INPUT", "expert_exposed_ns", _one_less)),
        ("a whole backward pass that is not stated", ["durations", "exchange"], _no_whole_backward),
        ("a whole backward pass of one in parts", ["durations", "exchange"], _whole_backward),
        ("a whole backward pass without parts", ["rule 7"], _whole_backward_without_parts),
        ("a whole backward pass where tensor ranks divide tokens", ["rule 7"], _whole_backward_where(_tensor_ranks)),
        ("a chunk that the row has not", ["rule 7"], _on_cut(_chunk_that_is_not_there)),
        ("a part that begins with another chunk", ["durations", "exchange"], _on_cut(_other_chunk)),
        ("a first part that begins inside of a row", ["rule 7"], _on_cut(_begins_with_a_chunk)),
        ("a last part that ends inside of a row", ["rule 7"], _on_cut(_ends_with_a_chunk)),
        ("a part without a chunk", ["rule 7"], _on_cut(_empty_part_of_chunks)),
        ("fewer chunks than bounds", ["rule 7"], _on_cut(_one_chunk_less)),
        ("chunks that cut no row", ["rule 7"], _on_cut(_no_cut)),
        ("chunks without parts", ["rule 7"], _on_cut(_chunks_without_parts)),
        ("a row that is cut behind a backward pass in parts", ["rule 7"], _on_cut(_cut_but_not_whole)),
        ("a cut that is not stated", ["bytes", "durations", "exchange"], _on_cut(_not_stated)),
        ("a cut row on one rank", ["rule 7"], _on_cut(_row_that_is_not_divided)),
        ("cut rows of experts with a capacity", ["rule 7"], _capacity),
        ("three parts where two are allowed", ["origin"], _fewer_parts_allowed(3)),
        ("two parts where micro-batches stay whole", ["origin"], _fewer_parts_allowed(2)),
        ("more parts than a job may have", ["origin"], _more_than_a_job_may_have),
    )
]
