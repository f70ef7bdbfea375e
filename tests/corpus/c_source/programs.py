"""The kernels in C of this folder: files as users write them, with their launches, and what is wrong in those with a mistake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Mistake:
    """What is wrong in a file.

    Attributes:
        findings: The class of the finding that is right; one of several where more than one is.
        lines: The text of the line that it names; one of these.
        repair: Replacements in the file that mend it.
        launch_repair: The replacement in the launches that mends it.
        processor: Whether the mended kernel is compared with the processor.
    """

    findings: tuple[str, ...]
    lines: tuple[str, ...]
    repair: tuple[tuple[str, str], ...] = ()
    launch_repair: tuple[str, str] | None = None
    processor: bool = True


@dataclass(frozen=True)
class Program:
    """A file with kernels, and the list of its launches."""

    source: Path
    mistake: Mistake | None = None

    @property
    def name(self) -> str:
        """The file's name, without what follows the point."""
        return self.source.stem

    @property
    def launches(self) -> Path:
        """The list of launches."""
        return self.source.with_suffix(".yaml")

    def mended(self, folder: Path) -> Program:
        """Write the program without its mistake into a folder."""
        text, launches = self.source.read_text(), self.launches.read_text()
        if self.mistake is not None:
            for old, new in self.mistake.repair:
                assert text.count(old) == 1, (self.name, old)
                text = text.replace(old, new)
            if self.mistake.launch_repair is not None:
                old, new = self.mistake.launch_repair
                assert old in launches, (self.name, old)
                launches = launches.replace(old, new)
        made = Program(folder / self.source.name)
        made.source.write_text(text)
        made.launches.write_text(launches)
        return made


def clean() -> list[Program]:
    """Return the programs without a mistake."""
    return [Program(file) for file in sorted((HERE / "clean").glob("*.c[lu]"))]


def planted() -> list[Program]:
    """Return the programs with one mistake each."""
    stated = yaml.safe_load((HERE / "planted.yaml").read_text())
    programs = []
    for file in sorted((HERE / "planted").glob("*.c[lu]")):
        one = stated.pop(file.stem)
        repair = tuple((old, new) for old, new in one.get("repair", ()))
        launch_repair = tuple(one["launch_repair"]) if "launch_repair" in one else None
        findings, lines = tuple(one["findings"]), tuple(one["lines"])
        programs.append(Program(file, Mistake(findings, lines, repair, launch_repair, one.get("processor", True))))
    assert not stated, list(stated)
    return programs
