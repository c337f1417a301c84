"""A small dataset of its own: samples of very different lengths, whose tokens follow a rule that a model can learn."""
import json
import random

VOCAB = 8192
SAMPLES = 1536


def length(numbers, most):
    """Mostly short, with a long tail."""
    return min(most, 8 + int(numbers.lognormvariate(5, 1.2)))


def tokens(numbers, count):
    """Each is the one before it and a step that stays the same: the next token can be foreseen after two."""
    first, step = numbers.randrange(VOCAB), numbers.randrange(1, 64)
    return [(first + step * place) % VOCAB for place in range(count)]


def write(path, with_input, most, samples=SAMPLES):
    """As JSON lines for `penstock dataset import`."""
    numbers = random.Random(7)
    with open(str(path), "w") as file:
        for _ in range(samples):
            if with_input:
                sample = {"input": tokens(numbers, length(numbers, most)), "target": tokens(numbers, length(numbers, most // 4))}
            else:
                sample = {"tokens": tokens(numbers, length(numbers, most))}
            file.write(json.dumps(sample) + "\n")
