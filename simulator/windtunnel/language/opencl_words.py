"""The words of OpenCL in findings: work-items and work-groups where CUDA has threads and blocks."""

from __future__ import annotations

import re

from windtunnel.core.errors import Finding

SOURCE = ("\x02", "\x03")
"""Characters around text of the source within a message that is still to be put into other words."""
_WORDS = {
    "a fence with an atomic operation, a grid barrier or another launch":
        "a fence with an atomic operation or another launch",
    "warp synchronisation": "sub-group barrier",
    "thread": "work-item", "threads": "work-items", "block": "work-group", "blocks": "work-groups",
    "warp": "sub-group", "grid": "launch",
}  # fmt: skip
_FOUND = re.compile(
    "\x02.*?\x03|'[^']*'|" + "|".join(rf"\b{re.escape(word)}\b" for word in sorted(_WORDS, key=len, reverse=True)),
    re.DOTALL,
)
"""Text of the source and names, which stay as they are, and words that have another one."""


def in_opencl(text: str) -> str:
    """Return a message about threads and blocks in the words of OpenCL."""
    worded = _FOUND.sub(lambda found: _WORDS.get(found[0], found[0]), text)
    return worded.translate({ord(mark): None for mark in SOURCE})


def put_into_opencl(finding: Finding) -> None:
    """Change the message of a finding into the words of OpenCL."""
    finding.args = (in_opencl(str(finding.args[0])), *finding.args[1:])
