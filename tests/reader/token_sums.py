"""Token sums of a micro-batch (execution.md, section 1), from which all of its costs follow."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenSums:
    rectangle: bool
    rows: int
    packed_rows: int
    source_length: int
    target_length: int
    source_tokens: int
    target_tokens: int
    source_squares: int
    target_squares: int
    products: int
    loss_positions: int
    # Of a context rank: of its rows those that are divided.
    divided_rows: int = 0

    @property
    def call_squares(self):
        """Of source and target: squares of the lengths that kernels of attention are called with."""
        if not self.rectangle or self.rows == 0:
            return self.source_squares, self.target_squares
        return self.source_squares / self.rows, self.target_squares / self.rows


def side_lengths(is_t5, sample):
    """Source and target tokens of a sample: a GPT has no source, its input and target together are its target."""
    if is_t5:
        return sample.input_tokens, sample.target_tokens
    return 0, sample.input_tokens + sample.target_tokens


def loss_positions(is_t5, sample):
    """How many positions of a sample the loss counts (section 10)."""
    if is_t5 or sample.input_tokens > 0 or sample.target_tokens == 0:
        return sample.target_tokens
    return sample.target_tokens - 1


def target_square(model, length):
    """What causal attention over a row of this length goes by, in the mean over the model's layers."""
    window = model.attention_window
    if window == 0 or length <= window:
        return length * length
    by_turns = model.layers // model.windowless_interval if model.windowless_interval else 0
    windowed = model.layers - by_turns - len(model.windowless_layers)
    return length * length - (length - window) ** 2 * windowed // model.layers


def loss_weight(is_t5, samples):
    """What the loss of a batch is divided by where a sample has a weight, else 0 (section 10)."""
    if all(sample.loss_weight is None for sample in samples):
        return 0.0
    total = 0.0
    for sample in samples:
        total += loss_positions(is_t5, sample) if sample.loss_weight is None else sample.loss_weight
    return total


def token_sums(is_t5, is_packed, micro_batch, samples, model):
    """The sums of a micro-batch; `samples` are those of the batch."""
    if is_packed:
        lengths = [side_lengths(is_t5, samples[index]) for index in micro_batch.samples]
        return TokenSums(
            rectangle=False,
            rows=0,
            packed_rows=len(lengths),
            source_length=0,
            target_length=0,
            source_tokens=sum(source for source, _ in lengths),
            target_tokens=sum(target for _, target in lengths),
            source_squares=sum(source * source for source, _ in lengths),
            target_squares=sum(target_square(model, target) for _, target in lengths),
            products=sum(source * target for source, target in lengths),
            loss_positions=micro_batch.loss_tokens,
        )
    rows, source, target = micro_batch.rows, micro_batch.source_length if is_t5 else 0, micro_batch.target_length
    return TokenSums(
        rectangle=True,
        rows=rows,
        packed_rows=0,
        source_length=source,
        target_length=target,
        source_tokens=rows * source,
        target_tokens=rows * target,
        source_squares=rows * source * source,
        target_squares=rows * target_square(model, target),
        products=rows * target * source,
        loss_positions=micro_batch.loss_tokens,
    )
