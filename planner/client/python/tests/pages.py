"""Listings and commands of a page in Markdown, as tests run them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
# Where pages say that the planner is.
ADDRESS = "127.0.0.1:7070"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: str, language: str) -> list[str]:
    """The blocks of a page (a path from the root); `language`: "python", or "" for commands. Raises ValueError where it has none."""
    found = [text for name, text in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if name == language]
    if not found:
        raise ValueError(f"{page}: has no block of {language or 'commands'}")
    return found


def run_listings(page: str, address: str, names: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    """Runs all Python of a page in one namespace, from the root, with the planner at `address`. `names`: what the page says that the
    reader has. Returns the namespace and what was printed."""
    namespace = dict(names or {})
    said = io.StringIO()
    for listing in blocks_of(page, "python"):
        with contextlib.chdir(ROOT), contextlib.redirect_stdout(said):
            exec(compile(listing.replace(ADDRESS, address), page, "exec"), namespace)
    return namespace, said.getvalue()


def commands_of(page: str) -> list[str]:
    """The commands of a page, one a line, without what stands behind a #."""
    lines = "".join(blocks_of(page, "")).splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]
