"""An abstract server for queueing studies: it takes exactly the time that a scenario states."""

from __future__ import annotations

from windtunnel.core.device import Kind
from windtunnel_models.kinds._shared import COMMON, EXACT, service

KIND = Kind(
    name="server",
    doc="abstract: takes the stated time, at the stated power",
    parameters=COMMON,
    costs={"service": service},
    errors={"service": EXACT},
    stated_power=True,
)
