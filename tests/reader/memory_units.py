"""Sizes of numbers in memory (execution.md, sections 1 and 8)."""

TOKEN_BYTES = 16
ELEMENT_BYTES = {"FLOAT64": 8, "FLOAT32": 4, "BFLOAT16": 2}
