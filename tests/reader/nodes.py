"""Which ranks of a mesh's stage groups are on one node: what links exchanges inside passes take (execution.md, section 7)."""


class Nodes:
    """Of a mesh whose nodes have so many ranks."""

    def __init__(self, pipeline, ranks_per_node):
        self._groups = pipeline.stage_groups()
        self._group_size = pipeline.group_size
        self._ranks_per_node = ranks_per_node
        self._known = {}

    def hold(self, first, count):
        """Whether in every stage group the ranks at so many places from the first on are on one node."""
        if (first, count) not in self._known:
            self._known[(first, count)] = all(
                len({rank // self._ranks_per_node for rank in group[first : first + count]}) == 1 for group in self._groups
            )
        return self._known[(first, count)]

    def hold_each(self, count):
        """The same of every run of so many places."""
        return all(self.hold(first, count) for first in range(0, self._group_size, count))
