"""What the reader compared, and where a plan says something else."""

from collections import Counter


class Report:
    """Collects comparisons by topic: how many agreed, and each that did not."""

    def __init__(self):
        self.agreed = Counter()
        self.differences = []  # (topic, place, text)

    def compare(self, topic, place, what, stated, expected):
        """Records whether what the plan states is what the contract gives."""
        self.require(topic, place, stated == expected, f"{what} is {stated}, should be {expected}")

    def require(self, topic, place, holds, text):
        """Records whether a condition holds; `text` says what is wrong where it does not."""
        if holds:
            self.agreed[topic] += 1
        else:
            self.differences.append((topic, place, text))

    def topics(self):
        """Topics with a difference."""
        return {topic for topic, _, _ in self.differences}

    def lines(self):
        return [f"{topic}: {place}: {text}" for topic, place, text in self.differences]
