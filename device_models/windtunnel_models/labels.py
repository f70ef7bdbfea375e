"""The SKU of a real device, by the name that its driver reports.

A name is compared as a whole, without brand marks and without the driver's additions in brackets: `NVIDIA H100 PCIe` is
not `h100-sxm-80gb`, and a device that the catalogue does not have gets no SKU. The module reads nothing of the
catalogue, so that it is fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HOST = "host"
HOST_APIS = ("native", "opencl", "wgpu", "vulkan")
"""The APIs through which the processor of this host is modelled."""

# Names that drivers report: those of CUDA and NVML (also through Vulkan, OpenCL and wgpu), HIP's board names, those of
# Intel, Mesa and Metal, the platforms of XRT and BittWare, and JAX's `device_kind`
# (jax/_src/pallas/mosaic/tpu_info.py).
_LABELS: Mapping[str, str] = {
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA H200 NVL": "h200-nvl-141gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H100 NVL": "h100-nvl-94gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-80GB": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A10": "a10",
    "NVIDIA A40": "a40",
    "NVIDIA L40S": "l40s",
    "NVIDIA L4": "l4",
    "NVIDIA L20": "l20",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100-sxm-32gb",
    "Tesla V100-SXM2-16GB": "v100-sxm-16gb",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P4": "p4",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-server",
    "NVIDIA B200": "b200-sxm-180gb",
    "NVIDIA GB200": "gb200",
    "NVIDIA B300 SXM6 AC": "b300-sxm-288gb",
    "NVIDIA GB300": "gb300",
    "AMD Instinct MI100": "mi100",
    "AMD Instinct MI210": "mi210",
    "AMD Instinct MI250X": "mi250x",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI325X": "mi325x-256gb",
    "AMD Instinct MI355X": "mi355x-288gb",
    "Intel(R) Arc(TM) A770 Graphics": "arc-a770",
    "Intel(R) Arc(TM) B580 Graphics": "arc-b580",
    "Intel(R) Arc(TM) Pro B60 Graphics": "arc-pro-b60",
    "Apple M1": "apple-m1",
    "Apple M1 Pro": "apple-m1-pro",
    "Apple M2 Ultra": "apple-m2-ultra",
    "Apple M4 Max": "apple-m4-max",
    "Alveo U50": "alveo-u50",
    "Alveo U250": "alveo-u250",
    "Alveo U280": "alveo-u280",
    "TPU v4": "tpu-v4",
    "TPU v5e": "tpu-v5e",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
    "TPU v5": "tpu-v5p",
    "TPU v6e": "tpu-v6e",
    "TPU v6 lite": "tpu-v6e",
}
_LEAST_BYTES: Mapping[str, float] = {"arc-a770": 12e9}
"""The minimum memory of a card whose name is also used for cards with less memory."""
_BRANDS = re.compile(r"\((?:r|tm)\)|™|®|\b(?:nvidia|amd|intel|tesla|geforce|instinct|graphics)\b")
_ADDED = re.compile(r"\s*[(/].*$")
"""Additions of Mesa and others after a name: ``(RADV GFX942)``, ``/PCIe/SSE2``."""
_XRT = re.compile(r"xilinx_(u\d+)_.*")


def plain(label: str) -> str:
    """Return a label without brands, marks, additions and differences of spelling."""
    text = _BRANDS.sub(" ", label.casefold().replace("(r)", " ").replace("(tm)", " "))
    text = _ADDED.sub("", text)
    text = _XRT.sub(r"alveo \1", text.strip())
    return re.sub(r"[\s_-]+", " ", text).strip()


_PLAIN: Mapping[str, str] = {plain(label): sku for label, sku in _LABELS.items()}


def model_of(label: str, kind: str, memory_bytes: float = 0.0) -> str | None:
    """Return the SKU of a device with this label and kind, ``host`` for a processor, or None if it has no SKU.

    ``memory_bytes``: 0 if it is not known. It distinguishes two cards with the same name.
    """
    if kind == "cpu":
        return HOST
    sku = _PLAIN.get(plain(label))
    if sku is not None and 0.0 < memory_bytes < _LEAST_BYTES.get(sku, 0.0):
        return None
    return sku
