"""`windtunnel advise`: compares one kernel launch for each command with a persistent kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from windtunnel.core.errors import InputError, Location
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.results.advice import LaunchAdvice
from windtunnel.core.units import format_quantity as show
from windtunnel.planning.launch_or_persist import BENCHMARK, Workload, advise
from windtunnel_models.catalogue import Catalogue, shipped_catalogue
from windtunnel_models.catalogue import device_model as device


@dataclass(frozen=True)
class CommandWorkload:
    """What a user states of a command: bytes to copy, and the kernel of a step by its time (us) or as an operation."""

    upload_bytes: float | None = None
    download_bytes: float | None = None
    kernel_us: float | None = None
    op: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    memory: str | None = None

    @property
    def stated(self) -> bool:
        """Whether anything is stated."""
        return bool(self.values) or any(
            part is not None for part in (self.upload_bytes, self.download_bytes, self.kernel_us, self.op, self.memory)
        )

    def workload(self) -> Workload:
        """Return the workload, or that of the benchmark if nothing is stated; raises InputError if it is incomplete."""
        if not self.stated:
            return BENCHMARK
        for name, value in (("--upload-bytes", self.upload_bytes), ("--download-bytes", self.download_bytes)):
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"this is {value:g}", where=Location(field=name), expected="zero or more, and finite")
        if self.kernel_us is not None and not 0 < self.kernel_us < math.inf:
            raise InputError(
                f"this is {self.kernel_us:g}",
                where=Location(field="--kernel-us"),
                expected="more than zero, and finite",
            )
        if (self.op is None) == (self.kernel_us is None) or (self.op is None and self.values):
            raise InputError(
                "a workload states its kernel once",
                where=Location(field="advise"),
                expected="--kernel-us TIME, or --op OP with its columns as KEY=VALUE",
            )
        up, down = self.upload_bytes or 0.0, self.download_bytes or 0.0
        memory = self.memory or "pinned"
        copies = f"a command uploads {show(up, 'B')} and downloads {show(down, 'B')} ({memory} memory)"
        if self.kernel_us is not None:
            return Workload(
                f"{copies}; a step is one kernel of {show(self.kernel_us * 1e-6, 's')}",
                kernel_s=self.kernel_us * 1e-6,
                upload_bytes=up,
                download_bytes=down,
                memory=memory,
            )
        rows = one_row(OPERATIONS.find(self.op or ""), self.values)
        columns = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return Workload(
            f"{copies}; a step is one {rows.op.name}({columns})",
            kernels=(rows,),
            upload_bytes=up,
            download_bytes=down,
            memory=memory,
        )


def advise_launch(
    commands_per_s: float,
    steps_per_command: int,
    device_name: str,
    catalogue: Catalogue | None = None,
    workload: CommandWorkload | None = None,
) -> LaunchAdvice:
    """Compare a kernel launch for each command with a persistent kernel: costs, crossovers and recommendation.

    Raises InputError for an incomplete workload, an unknown device, and a rate or a number of steps out of range.
    """
    stated = (workload or CommandWorkload()).workload()
    return advise(device(device_name, catalogue or shipped_catalogue()), commands_per_s, steps_per_command, stated)
