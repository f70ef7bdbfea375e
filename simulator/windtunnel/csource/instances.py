"""Instances of templates of kernels: those that a file names, and the lines that refer to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from windtunnel.csource.includes import without_comments


def references(instances: Sequence[str], inside: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line that refers to each instance, in the namespaces of its template."""
    made = []
    for number, name in enumerate(instances):
        spaces = inside.get(name.partition("<")[0], ())
        opened = "".join(f"namespace {'' if '(' in one else one} {{ " for one in spaces)
        made.append(f"{opened}static auto *__wt_instance_{number} = &{name};{' }' * len(spaces)}")
    return made


def instantiated(text: str) -> list[str]:
    """Return the instances of kernels that a text instantiates explicitly, or launches."""
    found = re.finditer(
        r"\btemplate\s+(?!<)[^;{}()]*?__global__[^;{}()]*?\b(\w+\s*<[^;{}()]*>)\s*\(", without_comments(text)
    )
    launched = re.finditer(r"\b([A-Za-z_]\w*\s*<[^;{}()<>]*>)\s*<<<", without_comments(text))
    return list(dict.fromkeys("".join(one[1].split()) for one in [*found, *launched]))
