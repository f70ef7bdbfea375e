"""docs/kernels.md: each of its blocks of Python runs unchanged from a file."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_shows_a_kernel_and_a_stencil() -> None:
    assert ["GridPos" in block for block in BLOCKS] == [False, False, False, True]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_page_on_kernels_works_as_it_is_written(number: int, tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    file.write_text(BLOCKS[number])
    runpy.run_path(str(file))
