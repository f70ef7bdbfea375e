"""``cupy.cuda.compiler``: errors of sources that do not compile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windtunnel.emulate.cupy.refusals import missing


class CompileException(Exception):
    """A source does not compile. Its text is Clang's message, with file and line."""

    def __init__(self, msg: str, source: str, name: str, options: Sequence[str], backend: str = "nvrtc") -> None:
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend
        super().__init__(msg, source, name, options, backend)

    def __str__(self) -> str:
        return self._msg

    def __repr__(self) -> str:
        return self._msg

    def get_message(self) -> str:
        """Return the message."""
        return self._msg

    def dump(self, f: Any) -> None:
        """Write the source with numbers of lines."""
        lines = self.source.split("\n")
        width = len(str(len(lines)))
        f.write(f"{self.backend.upper()} compilation error: {self._msg}\n-----\nName: {self.name}\n")
        f.write(f"Options: {' '.join(self.options)}\nCUDA source:\n")
        for number, line in enumerate(lines, 1):
            f.write(f"{number:0{width}d} {line.rstrip()}\n")
        f.write("-----\n")


class JitifyException(Exception):
    """Jitify reports an error; Windtunnel does not use it."""


def is_valid_kernel_name(name: str) -> bool:
    """Return whether a name is one of a kernel."""
    return re.match("^[a-zA-Z_][a-zA-Z_0-9]*$", name) is not None


def __getattr__(name: str) -> Any:
    missing("cupy.cuda.compiler", name)
