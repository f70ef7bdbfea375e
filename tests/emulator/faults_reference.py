"""What faults must do, as docs/testing.md says: a model that knows nothing of the fault injection."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from tests.emulator.faults_world import TAKING_S, World

COPIES = {"copy_in", "copy_out", "copy_within"}
# The table of docs/testing.md: what a kind strikes, and what it raises.
STRIKES: dict[str, set[str]] = {
    "out_of_memory": {"allocate"},
    "launch_failure": {"launch"},
    "queue_full": {"launch"} | COPIES,
    "copy_failure": COPIES,
    "link_down": COPIES,
    "device_lost": {"allocate", "launch", "synchronize"} | COPIES,
    "ecc": {"launch", "synchronize"} | COPIES,
    "hang": {"launch"},
    "slow_copy": COPIES,
    "throttle": {"launch"},
    "corrupt_copy": COPIES,
}
RAISES = {
    "out_of_memory": "DeviceOutOfMemory",
    "launch_failure": "LaunchError",
    "queue_full": "QueueFull",
    "copy_failure": "CopyError",
    "link_down": "LinkDown",
    "device_lost": "DeviceLost",
    "ecc": "EccError",
}
STICKS = {"DeviceLost", "EccError", "DeviceHang"}


@cache
def ticks(what: str, *sizes: int) -> tuple[int, ...]:
    """How long each piece of work of one call takes in a world without faults."""
    world = World()
    if what == "migrate":
        world.do("empty", sizes[0], "unified")
        world.do("launch", "double", 0, 32, 0)
        world.spans.clear()
        world.do("host", 0)
        if sizes[1:]:
            world.spans.clear()
            world.do("launch", "double", 0, 32, 0)
            del world.spans[1:]
    else:
        for _ in range(2):
            world.do("empty", sizes[0], "device")
    if what == "copy_in":
        world.do("copy_in", 0, bytes(sizes[0]), 0, bool(sizes[1]))
    elif what == "copy_out":
        world.do("copy_out", 0, sizes[0], 1, 0, bool(sizes[1]))
    elif what == "copy_within":
        world.do("copy_within", 0, 1, 0)
    elif what == "launch":
        world.do("launch", "double", 0, sizes[1], 0)
    elif what == "replay":
        world.do("graph", 0, ("double",) * sizes[2], bytes(sizes[1]))
        world.do("replay", 0, 1)
    return tuple(span.end - span.start for span in world.spans if span.engine != "markers")


@dataclass
class Declared:
    """A fault, and what the reference counts of it."""

    data: dict[str, Any]
    concerned: int = 0
    struck: int = 0

    def __str__(self) -> str:
        order = ("on", "kernel", "call", "probability", "after_s", "times")
        return " ".join(
            [self.data["kind"], *(f"{key}={self._said(self.data[key])}" for key in order if key in self.data)]
        )

    @staticmethod
    def _said(value: Any) -> str:
        return value if isinstance(value, str) else f"{value:g}"

    @property
    def uncertain(self) -> bool:
        return self.data.get("probability", 1.0) < 1.0

    @property
    def ends(self) -> bool:
        return self.data["kind"] in RAISES

    def due(self, operation: str, kernel: str | None, clock_s: float) -> bool:
        """Whether it strikes this call, or may."""
        if operation not in STRIKES[self.data["kind"]] or self.data.get("on", operation) != operation:
            return False
        if self.data.get("kernel", kernel) != kernel:
            return False
        self.concerned += 1
        if "probability" in self.data:
            return "times" not in self.data or self.struck < self.data["times"]
        if self.struck == self.data.get("times", 1):
            return False
        if "after_s" in self.data:
            return clock_s >= self.data["after_s"]
        return self.concerned >= self.data.get("call", 1)


@dataclass
class Verdict:
    """What a call comes to: the name of its error and what the text has, or the faults that strike it all the same."""

    error: str | None = None
    says: str = ""
    factor: float = 1.0
    corrupt: list[int] = field(default_factory=list)


class Reference:
    """What is so after each call, in plain Python."""

    def __init__(self) -> None:
        self.gone: str | None = None
        self.hangs: tuple[float, int] | None = None
        """Until when (s), and the seed of the plan that it is of."""
        self.faults: list[Declared] | None = None
        self.seed = 0
        self.log: list[str] = []
        self.data: dict[int, np.ndarray] = {}
        self.unified: dict[int, bool | None] = {}
        """Of unified buffers, whether their pages are on the device; None as long as nobody has touched them."""
        self.pool: Counter[tuple[bool, int]] = Counter()
        """Blocks that were given back, by whether they are unified and by size: the next such takes no time."""
        self.counts = Counter(launches=0, copied_bytes=0, allocations=0)

    def judge(self, operation: str, clock_s: float, news: list[str], kernel: str | None = None) -> Verdict:
        """What comes of a call; takes the lines that it finds in the news of the log out of them."""
        if self.gone is not None:
            return Verdict(self.gone, operation.replace("_", " "))
        due = [fault for fault in self.faults or () if fault.due(operation, kernel, clock_s)]
        where = f" injected into {operation}{f' {kernel}' if kernel else ''} at {clock_s:.9g} s"
        mine = []
        while news and where in news[0]:
            mine.append(news.pop(0))
        said = [line.split(where)[0] for line in mine]
        striking = [fault for fault in due if not fault.uncertain or str(fault) in said]
        striking = [fault for fault in striking if fault.ends][:1] or striking
        assert said == [str(fault) for fault in striking], (operation, kernel, clock_s)
        verdict = Verdict()
        for fault, line in zip(striking, mine, strict=True):
            fault.struck += 1
            kind = fault.data["kind"]
            self.log.append(line)
            if kind in RAISES:
                verdict.error, verdict.says = RAISES[kind], f"(fault '{fault}', seed {self.seed})"
                if RAISES[kind] in STICKS:
                    self.gone = RAISES[kind]
            elif kind == "hang" and self.hangs is None:
                self.hangs = (clock_s + fault.data.get("watchdog_timeout_s", 2.0), self.seed)
            elif kind in ("slow_copy", "throttle"):
                verdict.factor *= fault.data.get("factor", 4.0)
            elif kind == "corrupt_copy":
                bit = re.search(r": bit (\d+)$", line)
                verdict.corrupt.append(int(bit[1]) if bit else -1)
        return verdict

    def lost(self) -> None:
        self.data.clear()
        self.unified.clear()
        self.pool.clear()

    def taken(self, size: int, unified: bool = False) -> float:
        """Memory is had; how long that takes (s)."""
        block = unified, -(-size // 512)
        if self.pool[block]:
            self.pool[block] -= 1
            return 0.0
        return TAKING_S
