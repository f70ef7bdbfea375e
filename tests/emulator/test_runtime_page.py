"""docs/runtime.md: its blocks of Python run unchanged, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "runtime.md"


def test_the_page_on_the_runtime_works_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) == 5
    names: dict[str, object] = {"__name__": "runtime_page"}
    for block in blocks:
        # So that an error names the page's own line.
        code = "\n" * text.count("\n", 0, block.start(1)) + block[1]
        exec(compile(code, str(PAGE), "exec"), names)
