"""The planner's program with the shared libraries that it loads, as a Python package; penstock.local() finds it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

# The program; it may be started as it is, from anywhere.
BINARY = Path(__file__).resolve().parent / "bin" / "penstock-planner"


def main() -> NoReturn:
    """`penstock-planner` on the command line: becomes the program."""
    os.execv(BINARY, [str(BINARY), *sys.argv[1:]])
