"""Launch times and host copies by API and vendor, with each device left out in turn.

    .venv/bin/python benchmarks/accuracy/launches.py ../shared/truth [reports/validation/published/launches.md]

The shipped rule is a median: of the devices of the same API and vendor if there are any, else of those of the API.
Here, each device is estimated from the others by that rule.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel_models.catalogue import Catalogue

PLATFORMS = {
    "NVIDIA_CUDA": "nvidia",
    "Nvidia": "nvidia",
    "AMD_Accelerated_Parallel_Processing": "amd",
    "AMD": "amd",
    "Intel_Graphics_Compute_Runtime": "intel",
    "Apple": "apple",
}
"""The vendor of each GPU driver, by clpeak's folder of results. Portable and software drivers are excluded."""

PROCESSORS = ("FX_8350", "Athlon", "Phenom", "Core", "Xeon", "i3_", "i7-", "cpu", "llvmpipe", "Threadripper", "E-350")
OLD = (
    "Capeverde",
    "Cayman",
    "Cypress",
    "R7_260X",
    "R9_",
    "Hawaii",
    "Tahiti",
    "A10-7850K",
    "A6-1450",
    "Mac_Pro",
    "Iris",
)
"""AMD devices before ROCm and Apple devices before its own silicon. They had other drivers, so they are excluded."""

COPIES = {
    "AMD_MI100": "mi100",
    "AMD_MI250X": "mi250x",
    "AMD Instinct MI300X VF": "mi300x",
    "gfx942:sramecc+:xnack-": "mi300x",
    "NVIDIA_A100-SXM4-40GB": "a100-sxm-40gb",
    "Tesla_T4": "t4",
    "Tesla_V100": "v100-pcie-32gb",
}
"""The devices of the table that are in the catalogue, which has their host link."""

CATALOGUE = Catalogue()


@dataclass(frozen=True)
class Measured:
    device: str
    api: str
    vendor: str
    round_trip_us: float | None
    dispatch_us: float | None
    pinned: tuple[float, ...]
    pageable: tuple[float, ...]


def read(folder: Path) -> list[Measured]:
    """The measurements of GPUs through the drivers of their vendors."""
    measured = []
    with (folder / "launch_transfer.csv").open(newline="") as file:
        for r in csv.DictReader(file):
            parts = r["file"].split("/")
            vendor = PLATFORMS.get(parts[1] if parts[0] == "old" else parts[0])
            if (
                vendor is None
                or any(part in r["device"] for part in (*PROCESSORS, *OLD))
                or r["api"] in ("cpu", "oneapi")
            ):
                continue

            def number(*names: str, row: dict[str, str] = r) -> tuple[float, ...]:
                return tuple(float(row[name]) for name in names if row[name])

            round_trip = number("launch_us") or number("launch_us_roundtrip")
            dispatch = number("launch_us_dispatch")
            measured.append(
                Measured(
                    r["device"].strip(),
                    {"rocm": "hip"}.get(r["api"], r["api"]),
                    vendor,
                    round_trip[0] if round_trip else None,
                    dispatch[0] if dispatch else None,
                    number("xfer_h2d_pinned", "xfer_d2h_pinned"),
                    number("h2d_gb_per_s", "d2h_gb_per_s")
                    or number("xfer_enqueuewritebuffer", "xfer_enqueuereadbuffer"),
                )
            )
    return measured


def estimates(
    rows: list[Measured], value: Callable[[Measured], float | None], i: int
) -> tuple[float | None, float | None]:
    """The median over the other devices of the API, and over those of the same API and vendor."""
    others = [r for j, r in enumerate(rows) if j != i and r.device != rows[i].device and value(r) is not None]
    api = [value(r) for r in others if r.api == rows[i].api]
    vendor = [value(r) for r in others if r.api == rows[i].api and r.vendor == rows[i].vendor]
    return (float(np.median(api)) if api else None, float(np.median(vendor)) if vendor else None)


def launches(rows: list[Measured], name: str, value: Callable[[Measured], float | None]) -> list[str]:
    groups: dict[tuple[str, str], list[tuple[float, float | None, float | None]]] = {}
    for i, r in enumerate(rows):
        measured = value(r)
        if measured is not None:
            groups.setdefault((r.api, r.vendor), []).append((measured, *estimates(rows, value, i)))
    lines = []
    for (api, vendor), members in sorted(groups.items()):
        median = float(np.median([m for m, _, _ in members]))
        spread = f"{min(m for m, _, _ in members):.3g} to {max(m for m, _, _ in members):.3g}"
        cells = []
        for place in (1, 2):
            pairs = [(m[0], m[place]) for m in members if m[place] is not None]
            error = [abs(e / m - 1.0) for m, e in pairs if e is not None]
            factor = [max(e / m, m / e) for m, e in pairs if e is not None]
            cells.append(f"{np.mean(error):.0%} / {np.median(factor):.2f}" if error else "–")
        lines.append(
            f"| {name} | {api} | {vendor} | {len(members)} | {median:.3g} | {spread} | {cells[0]} | {cells[1]} |"
        )
    return lines


def copies(rows: list[Measured]) -> list[str]:
    known = [(r, COPIES[r.device]) for r in rows if r.device in COPIES]
    pageable = {sku: float(np.mean(r.pageable)) for r, sku in known if r.pageable}
    pinned = {sku: float(np.mean(r.pinned)) for r, sku in known if r.pinned}
    lines = []
    for sku, rate in sorted(pageable.items()):
        device = CATALOGUE.device(sku, calibrated=False)
        link = (device.number("host_link_bytes_per_s") or 0.0) * (device.number("host_link_efficiency") or 0.0) / 1e9
        others = [v for other, v in pageable.items() if other != sku]
        staged = float(np.median(others))
        estimated = (link**-4 + staged**-4) ** -0.25
        half = 0.5 * link
        lines.append(
            f"| {sku} | pageable | {rate:.1f} | {estimated:.1f} | {abs(estimated / rate - 1):.0%} "
            f"| {half:.1f} | {abs(half / rate - 1):.0%} |"
        )
    for sku, rate in sorted(pinned.items()):
        size = 1_000_000_000
        device = CATALOGUE.device(sku, calibrated=False)
        cost = device.cost(one_row(OPERATIONS["copy"], {"bytes": size, "direction": "h2d", "memory": "pinned"}))
        estimated = size / float(cost.duration_s[0]) / 1e9
        lines.append(f"| {sku} | pinned | {rate:.1f} | {estimated:.1f} | {abs(estimated / rate - 1):.0%} | – | – |")
    return lines


def main() -> None:
    rows = read(Path(sys.argv[1]))
    lines = [
        "# Launches and host copies",
        "",
        "Generated by `benchmarks/accuracy/launches.py` from krrishnarraj/clpeak before a89d2ae (Apache-2.0): GPUs",
        "with their vendors' drivers, AMD since ROCm, Apple since its own silicon.",
        "",
        "- `median`, `range`: measured times (us).",
        "- `by API`, `by vendor`: errors if each device is estimated by the median of the other devices of its API, or",
        "  by that of the other devices of its API and vendor. The first value is the MAPE. The second is the median",
        "  error factor (the larger of estimated / measured and its inverse).",
        "- –: no other device.",
        "",
        "| time | API | vendor | devices | median | range | by API | by vendor |",
        "|---|---|---|---|---|---|---|---|",
        *launches(rows, "round trip", lambda r: r.round_trip_us),
        *launches(rows, "dispatch", lambda r: r.dispatch_us),
        "",
        "Launch times depend on the host and the driver as much as on the device: between devices of one vendor, a",
        "median error factor of 1.3 to 1.6 remains. Old runs have a single value, which their source calls a round",
        "trip, although it is as short as the enqueue alone of newer runs, which measure the two separately (RTX 5060:",
        "round trip 15.7 us and enqueue 6.5 us; older boards: 3.4 to 8 us). CUDA, HIP and Metal were measured on a",
        "single device each, which therefore cannot be left out: these API profiles are those of that device. For",
        "OpenCL on Apple, the values are 1.45 and 6.92 us on M1 and 197 us on M1 Pro. The last one is from a run with",
        "separate measurements.",
        "",
        "## Copies between host and device (GB/s)",
        "",
        "A pageable copy passes through a pinned buffer of the driver, so its rate is that of the link or that of the",
        "host's copying, whichever is lower. The rate of each device is estimated from its link and the median",
        "pageable rate of the other devices (`model`). `half of pinned` is the previous rule, half of the pinned rate.",
        "`error` is the absolute percentage error of the column before it. –: not applicable to pinned memory.",
        "",
        "| device | memory | measured | model | error | half of pinned | error |",
        "|---|---|---|---|---|---|---|",
        *copies(rows),
        "",
        "The copies of T4 are much slower than its link, because of its host. Pinned copies were measured on only one",
        "device whose link is known.",
    ]
    text = "\n".join(lines) + "\n"
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
