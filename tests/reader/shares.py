"""What each context rank has of a micro-batch and of its parts (execution.md, section 10), and what it sends and receives of keys and values (7)."""

from dataclasses import dataclass, field

from parts import chunks_of_parts, cut_rows
from token_sums import TokenSums, side_lengths, target_square, token_sums


@dataclass
class Share:
    """Of one context rank. `sums` are those from which costs follow."""

    sums: TokenSums
    # Of divided rows: the sum of Square(l) / k, and the sum of the lengths.
    divided_squares: float = 0.0
    divided_tokens: int = 0
    # The lengths of those that are cut between parts.
    cut_tokens: int = 0
    # Tokens whose keys and values go out and come in, in one layer of a forward pass, by span (first, ranks).
    sent: dict = field(default_factory=dict)
    received: dict = field(default_factory=dict)
    # Of the parts of a micro-batch that is cut, a Share of each.
    parts: list = field(default_factory=list)
    # Forward passes alone go in them.
    whole_backward: bool = False

    def goes_in_parts(self, forward):
        """Whether passes go through it part by part, in turn: forward ones, or backward ones."""
        return bool(self.parts) and (forward or not self.whole_backward)

    def in_pass(self, forward):
        """Shares through which a pass goes: all of it at once where it is whole."""
        return self.parts if self.goes_in_parts(forward) else [self]


def rows_of(reading, micro_batch):
    """[(length, samples)] of the rows of a GPT's micro-batch."""
    layout = reading.layout(micro_batch)
    samples = [reading.samples[index] for index in micro_batch.samples]
    if layout == "CONCATENATED":
        bounds = micro_batch.row_samples
        return [(micro_batch.target_length, samples[first:last]) for first, last in zip(bounds, bounds[1:])]
    if layout == "PADDED":
        return [(micro_batch.target_length, [sample]) for sample in samples]
    return [(side_lengths(False, sample)[1], [sample]) for sample in samples]


def chunks_of(length, ranks):
    """Ranges of the chunks of a row that is divided over so many ranks."""
    return [range(index * length // (2 * ranks), (index + 1) * length // (2 * ranks)) for index in range(2 * ranks)]


def loss_places(samples):
    """Places in a row whose next token is learnt."""
    places, start = set(), 0
    for sample in samples:
        length = sample.input_tokens + sample.target_tokens
        places.update(start + place - 1 for place in range(max(sample.input_tokens, 1), length))
        start += length
    return places


def is_allowed(first, ranks, length, contexts):
    """Whether a row of this length may have this span."""
    if ranks < 1 or ranks & (ranks - 1) or first % ranks or first + ranks > contexts:
        return False
    return ranks == 1 or length >= 2 * ranks


def shares_of(reading, micro_batch, pipeline):
    """One Share for each context rank of a pipeline."""
    model, contexts = reading.plan.model, pipeline.contexts
    if contexts == 1:
        is_packed = reading.layout(micro_batch) == "PACKED"
        shares = [Share(token_sums(reading.is_t5, is_packed, micro_batch, reading.samples, model))]
        rows = [(row, 0, 1) for row in rows_of(reading, micro_batch)] if micro_batch.part_rows else []
    else:
        rows = list(zip(rows_of(reading, micro_batch), micro_batch.span_first, micro_batch.span_ranks))
        shares = _shares_of_rows(model, rows, contexts)
    parts = chunks_of_parts(reading, micro_batch, pipeline)
    for part in parts:
        # Spans that are missing are damage to rule 7.
        rows_of_part = [(*rows[row], chunks) for row, chunks in part.items() if row < len(rows)]
        for share, of_part in zip(shares, _shares_of_rows(model, rows_of_part, contexts)):
            share.parts.append(of_part)
            share.whole_backward = micro_batch.whole_backward
    for row in cut_rows(micro_batch) & set(range(len(rows))) if parts else ():
        (length, _), first, ranks = rows[row]
        for share in shares[first : first + ranks]:
            share.cut_tokens += length
    return shares


def _shares_of_rows(model, rows, contexts):
    """`rows`: [((length, samples), first rank of the span, ranks of the span)], and of a part the (first chunk, chunk behind the
    last one or None) that it has of them."""
    tokens, squares, losses = [0] * contexts, [0.0] * contexts, [0] * contexts
    parts, divided = [0] * contexts, [0] * contexts
    shares = [Share(None) for _ in range(contexts)]
    for (length, samples), first, ranks, *chunks in rows:
        if not is_allowed(first, ranks, length, contexts):
            continue  # Rule 7.
        places = loss_places(samples)
        division = _Division(length, ranks, *(chunks[0] if chunks else (0, None)))
        for number in range(ranks):
            context = first + number
            own = division.own_chunks(number)
            parts[context] += bool(own)
            divided[context] += 1 if own and ranks > 1 else 0
            for chunk in own:
                tokens[context] += len(division.tokens(chunk))
                losses[context] += sum(place in division.tokens(chunk) for place in places)
            square = target_square(model, length) * division.part_of_square(own)
            squares[context] += square
            if ranks > 1:
                _add_exchange(shares[context], (first, ranks), division, number, square)
    for context, share in enumerate(shares):
        share.sums = TokenSums(False, 0, parts[context], 0, 0, 0, tokens[context], 0, squares[context], 0, losses[context], divided[context])
    return shares


class _Division:
    """A row over so many ranks, of which a part has the chunks from `begin` on that are before `end`."""

    def __init__(self, length, ranks, begin, end):
        self.ranks = ranks
        self.length = length
        self._chunks = chunks_of(length, ranks) if ranks > 1 else [range(length)]
        self._in_part = range(begin, len(self._chunks) if end is None else end)

    def tokens(self, chunk):
        return self._chunks[chunk]

    def chunks_of_rank(self, number):
        """All of the row, ascending."""
        return [number, 2 * self.ranks - 1 - number] if self.ranks > 1 else [0]

    def own_chunks(self, number):
        """Those in the part."""
        return [chunk for chunk in self.chunks_of_rank(number) if chunk in self._in_part]

    def part_of_square(self, chunks):
        """Of the row's attention: a chunk sees all before it and half of itself."""
        if self.ranks == 1:
            return 1
        return sum(2 * chunk + 1 for chunk in chunks) / (4 * self.ranks**2)

    def goes(self, chunk, number):
        """Whether its keys go to that rank in the part: they do with its first query behind them."""
        queries = [own for own in self.chunks_of_rank(number) if own > chunk]
        return bool(queries) and queries[0] in self._in_part


def _add_exchange(share, span, division, number, square):
    chunks = division.chunks_of_rank(number)
    others = [other for other in range(division.ranks) if other != number]
    share.divided_squares += square
    share.divided_tokens += division.length
    sent = sum(len(division.tokens(chunk)) for chunk in chunks for other in others if division.goes(chunk, other))
    received = sum(
        len(division.tokens(chunk)) for other in others for chunk in division.chunks_of_rank(other) if division.goes(chunk, number)
    )
    share.sent[span] = share.sent.get(span, 0) + sent
    share.received[span] = share.received.get(span, 0) + received


def part_of(tokens, tensor, tensors):
    """Of a context rank's tokens those that a tensor rank has between layers."""
    each = tokens // tensors
    return tokens - each * (tensors - 1) if tensor == tensors - 1 else each
