"""What the durations of passes say about lengths, and what they do not.

Micro-batches have a fixed number of tokens, the context, so a pass takes a + b * q, where q is the sum of the squares of its samples' lengths
over the square of the context: 1 for one sample of the whole context, 1/k for k samples of the same length. That gives q of each micro-batch
if two of them are known. Assumed: the longest are one sample of the whole context (where many samples are cut to it, many take the same
longest time), and the shortest are samples of `shortest` (a share of the context) alone.

q does not say how many samples there are. Of all lengths with the same q and the same sum, the longest sample is between about q and sqrt(q) of
the context: `equal_samples` has the shortest longest sample, `one_long_sample` the longest.
"""

import math
import statistics
from dataclasses import dataclass

# Of the range of durations, what counts as the longest; below `NOT_FULL` of the shortest, a micro-batch has fewer tokens than the others. No more
# than `SHORTEST_QUANTILE` of them may.
LONGEST = 0.9
NOT_FULL = 0.97
SHORTEST_QUANTILE, LONGEST_QUANTILE = 0.01, 0.99


@dataclass(frozen=True)
class Shape:
    """Both as shares of the context and of its square."""

    tokens: float
    squares: float


@dataclass(frozen=True)
class Scale:
    """Seconds of all passes of a micro-batch that has the shortest samples alone, and of one that has one sample of the whole context."""

    shortest_seconds: float
    longest_seconds: float
    # Of the shortest samples, as a share of the context.
    shortest: float
    # Of the seconds that no square is in, what does not depend on tokens either.
    fixed: float
    # How many of the micro-batches are as long as the longest: a whole context is only certain where it is not a few.
    share_of_longest: float

    def slope(self):
        return (self.longest_seconds - self.shortest_seconds) / (1 - self.shortest)

    def intercept(self):
        return self.shortest_seconds - self.slope() * self.shortest


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def total(micro_batch):
    return sum(micro_batch.values())


def scale_of(totals, shortest, fixed):
    low, high = quantile(totals, SHORTEST_QUANTILE), quantile(totals, LONGEST_QUANTILE)
    longest = [one for one in totals if one >= low + LONGEST * (high - low)]
    return Scale(low, statistics.median(longest), shortest, fixed, len(longest) / len(totals))


def shape_of(seconds, scale):
    if seconds < NOT_FULL * scale.shortest_seconds:
        fixed = scale.fixed * scale.intercept()
        tokens = max((seconds - fixed) / (scale.shortest_seconds - fixed), scale.shortest)
        return Shape(tokens, scale.shortest * tokens)
    return Shape(1.0, min(1.0, max(scale.shortest, (seconds - scale.intercept()) / scale.slope())))


def equal_samples(tokens, squares):
    """As many samples of one length as the sum of squares allows, and one that is shorter; `squares` in tokens squared."""
    share = squares / tokens**2
    count = max(1, math.floor(1 / share + 1e-9))
    length = (count + math.sqrt(max(0.0, count**2 - (count**2 + count) * (1 - share)))) / (count**2 + count)
    each = min(tokens // count, round(length * tokens))
    rest = tokens - count * each
    return [each] * count + ([rest] if rest else [])


def one_long_sample(tokens, squares, shortest):
    """One sample, and the rest of the tokens in samples of `shortest` tokens."""
    root = math.sqrt(max(0.0, shortest**2 + 4 * (squares - tokens * shortest)))
    longest = min(tokens, max(min(tokens, shortest), round((shortest + root) / 2)))
    count, rest = divmod(tokens - longest, shortest)
    return [longest] + [shortest] * count + ([rest] if rest else [])


def samples_of(shape, context, decomposition, shortest):
    """Lengths in tokens, longest first; `context` and `shortest` in tokens."""
    tokens, squares = round(shape.tokens * context), shape.squares * context**2
    return equal_samples(tokens, squares) if decomposition == "equal" else one_long_sample(tokens, squares, shortest)
