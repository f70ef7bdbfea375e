"""What the system says without a driver, from files made for it: the bus, and what a container may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.backends.common import system


def on_the_bus(root: Path, *functions: str) -> tuple[system.PciDevice, ...]:
    """Functions, each ``VENDOR:DEVICE:CLASS``, as Linux shows them."""
    for number, function in enumerate(functions):
        vendor, device, base = function.upper().split(":")
        folder = root / f"0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        text = f"pci:v0000{vendor}d0000{device}sv000010DEsd000018BEbc{base}sc02i00\n"
        (folder / "modalias").write_text(text)
    return system.pci_devices(root)


@pytest.mark.parametrize(
    ("function", "kind", "label"),
    [
        ("10de:2335:03", "gpu", "NVIDIA GPU"),
        ("1002:74a1:12", "gpu", "AMD GPU"),
        ("8086:56a0:03", "gpu", "Intel GPU"),
        ("8086:4940:0b", "qat", "Intel QuickAssist 4xxx"),
        ("15b3:a2dc:02", "dpu", "NVIDIA BlueField-3"),
        ("1ae0:006f:12", "tpu", "Google TPU v6e"),
        ("10ee:500d:12", "fpga", "Alveo U280"),
        ("10ee:9999:05", "fpga", "AMD Xilinx FPGA"),
        ("10de:22a3:06", "", ""),  # NVSwitch: a bridge
        ("10de:10fa:04", "", ""),  # a card's sound
        ("8086:0d57:06", "", ""),
        ("15b3:101d:02", "", ""),  # a network card without a processor
        ("1a03:2000:03", "", ""),  # a server's console
    ],
)
def test_accelerators_are_told_from_the_rest_of_the_bus(tmp_path: Path, function: str, kind: str, label: str) -> None:
    (device,) = on_the_bus(tmp_path, function)
    assert (device.kind, device.label, device.ids) == (kind, label, function[:9])


def test_a_bus_that_is_not_there_or_cannot_be_read_has_nothing(tmp_path: Path) -> None:
    assert system.pci_devices(tmp_path / "none") == ()
    on_the_bus(tmp_path, "10de:2335:03")
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:02:00.0").mkdir()
    (tmp_path / "0000:02:00.0" / "modalias").write_text("usb:v1D6Bp0002\n")
    assert [device.address for device in system.pci_devices(tmp_path)] == ["0000:00:00.0"]


def test_a_container_gets_what_its_limits_say_and_no_more_than_the_host_has(tmp_path: Path) -> None:
    host = system.limits(tmp_path)
    assert host.cores >= 1 and host.memory_bytes > 2**20
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text(f"{2**20}\n")
    mine = system.limits(tmp_path)
    assert (mine.cores, mine.memory_bytes) == (0.5, 2.0**20)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert system.limits(tmp_path) == host
    (tmp_path / "cpu.max").write_text("99900000 100000\n")
    (tmp_path / "memory.max").write_text(f"{2**62}\n")
    assert system.limits(tmp_path) == host
