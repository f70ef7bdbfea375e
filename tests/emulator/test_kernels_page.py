"""docs/kernels.md: its first block of Python runs as it stands, from a file, as kernels do."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"


def test_the_page_on_kernels_works_as_it_is_written(tmp_path: Path) -> None:
    (first, *_) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "page.py"
    file.write_text(first)
    runpy.run_path(str(file))
