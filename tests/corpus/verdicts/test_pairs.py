"""Right kernels and kernels with one mistake, with the verdicts that their author wrote down before they were checked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from windtunnel.app.check import check
from windtunnel.app.check_arguments import LaunchRequest
from windtunnel.app.check_launches import dims
from windtunnel.core.errors import InputError

HERE = Path(__file__).parent
OPEN = {
    "bits_bad": "a bit-field that was never set, beside one that was",
    "member_bad": "a member that was never set, of a struct that was copied through shared memory",
}
"""The kernels whose mistake is not found, and what it is (docs/open-ends.md)."""


ONCE_WRONG = [
    "divzero",
    "eventlost",
    "reqd",
    "instruct",
    "dangling",
    "member",
    "bits",
    "loopvar",
    "halfsync",
    "halfshfl",
    "exitedshfl",
    "ballotelse",
    "looplane",
    "wmma",
    "coal",
    "coal2",
    "labeledbranch",
    "tile8branch",
    "surf",
    "img",
    "modzero",
    "sub16",
    "sub16sq",
    "blog",
    "divvec",
    "divassign",
    "structarr",
    "reqd2",
    "eventlost2",
    "regloop",
    "arrloop",
    "dangref",
    "img2",
    "img3",
    "surf2",
    "firstwarp",
    "matchany",
    "exitloop",
    "subgroup",
]
"""The pairs of which a verdict was wrong when they were written. The suite has these; the study has all."""


def stated(file: Path) -> tuple[LaunchRequest, list[str]]:
    """Return the launch and the verdicts that the first two lines of a file state."""
    launch, verdict = (line.split(": ", 1)[1].split() for line in file.read_text().splitlines()[:2])
    options = list(zip(launch[::2], launch[1::2], strict=True))
    sizes = {name: dims(value, name) for name, value in options if name in ("--grid", "--block")}
    arguments = dict(value.split("=", 1) for name, value in options if name == "--arg")
    shared = sum(int(value) for name, value in options if name == "--shared-bytes")
    request = LaunchRequest(file, None, sizes["--grid"], sizes["--block"], arguments, shared)
    return request, [word for word in verdict if word != "or"]


def found(request: LaunchRequest) -> str:
    """Return the class of what the check finds; ``refused`` if it does not launch the kernel."""
    try:
        findings = check([request], quiet=True).findings
    except InputError:
        return "refused"
    return findings[0].finding if findings else "clean"


def differing(files: Sequence[Path]) -> dict[str, tuple[str, list[str]]]:
    """Return the kernels whose verdict is not the author's: what is found, and what is right."""
    wrong = {}
    for file in files:
        request, verdicts = stated(file)
        verdict = found(request)
        if verdict not in verdicts:
            wrong[file.stem] = (verdict, verdicts)
    return wrong


def test_each_kernel_has_the_verdict_of_its_author() -> None:
    files = [file for file in sorted(HERE.glob("*.c[lu]")) if file.stem.rpartition("_")[0] in ONCE_WRONG]
    assert len(files) >= 60
    assert differing(files) == {name: ("clean", ["UninitializedRead"]) for name in OPEN}


if __name__ == "__main__":
    wrong = differing(sorted(HERE.glob("*.c[lu]")))
    print(f"{wrong.keys() ^ OPEN.keys() or 'no'} kernels with another verdict than their author's")
    sys.exit(wrong.keys() != OPEN.keys())
