"""Real devices by name: what `devices --real` lists, what selection finds, and what is opened, or why it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.backends.common import system
from windtunnel.backends.discovery import real_devices
from windtunnel.cli import main as cli
from windtunnel.core import errors
from windtunnel.library.devices import _real_backends, open_real_device
from windtunnel.validation import campaign
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.host import host_spec
from windtunnel_models.labels import _LABELS, HOST_APIS, model_of

Fake = Callable[..., str]
POCL = "device(label='cpu-haswell-AMD EPYC', kind='cpu', software=True, driver='PoCL 3.0')"
CARD = "device(label='NVIDIA L4', memory_bytes=24e9, driver='550.54', vendor='NVIDIA')"
CUDA_CARD = CARD.replace("device(", "device(api='cuda', ")


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_devices_real_lists_hardware_first_and_tells_software_apart(
    fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("opencl", f"return [{POCL}, {CARD.replace('device(', 'device(1, ')}]", "context=opened")
    fake("wgpu", "time.sleep(100)", "timeout_s=0.01")
    fake("fpga", "return [device(label='Alveo U280', kind='fpga', api='xrt', software=True)]")
    code, out, err = command(capsys, "devices", "--real", "--format", "json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    shown = ("name", "kind", "api", "software", "model", "programs", "driver")
    assert [tuple(row[key] for key in shown) for row in rows] == [
        ("opencl:1", "gpu", "opencl", False, "l4", True, "550.54"),
        ("fpga:0", "fpga", "xrt", True, None, False, "1.0"),  # a program in a card's place is not that card
        ("opencl:0", "cpu", "opencl", True, "host", True, "PoCL 3.0"),
    ]
    code, out, err = command(capsys, "devices", "--real")
    assert (code, err) == (0, "")
    hardware, software = out.split("software: executed by this host's processor, not an accelerator;")
    assert hardware.startswith("hardware\n") and "NVIDIA L4" in hardware and "24.0 GB" in hardware
    assert "cpu-haswell" in software and "are no GPUs" in software and "NVIDIA" not in software


def test_where_nothing_is_there_the_list_is_empty_and_quiet(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake("opencl", "return [device()]", "present=lambda: False")
    fake("wgpu", "os.abort()")
    assert command(capsys, "devices", "--real", "--format", "json") == (0, "[]\n", "")
    code, out, err = command(capsys, "devices", "--real")
    assert (code, err) == (0, "") and "windtunnel doctor" in out


def test_a_folder_of_skus_has_no_part_in_what_is_on_the_host(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = command(capsys, "devices", "--real", "--catalog", str(tmp_path))
    assert code == 2 and "--catalog" in err


# Labels.


@pytest.mark.parametrize(("label", "sku"), _LABELS.items())
def test_every_label_is_of_a_sku_of_the_catalogue(label: str, sku: str) -> None:
    assert model_of(label, Catalogue().spec(sku).kind) == sku


def test_every_gpu_and_tpu_of_the_catalogue_has_a_label() -> None:
    assert {spec.sku for spec in Catalogue().specs() if spec.kind in ("gpu", "tpu")} <= set(_LABELS.values())


@pytest.mark.parametrize(
    ("label", "memory", "sku"),
    [
        ("NVIDIA H200", 150e9, "h200-sxm-141gb"),
        ("NVIDIA GeForce RTX 4090/PCIe/SSE2", 0.0, "rtx-4090"),
        ("AMD Instinct MI300X (RADV GFX942)", 0.0, "mi300x"),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", 16e9, "arc-a770"),
        ("Intel(R) Arc(TM) A770 Graphics", 8e9, None),
        ("xilinx_u280_gen3x16_xdma_base_1", 0.0, "alveo-u280"),
        ("NVIDIA H100 PCIe", 80e9, "h100-pcie-80gb"),
        ("NVIDIA H200 NVL", 141e9, "h200-nvl-141gb"),
        ("NVIDIA H20", 96e9, None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 10e9, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16e9, None),
        ("Tesla P40", 24e9, None),
        ("Apple M1 Max", 0.0, None),
        ("", 0.0, None),
    ],
)
def test_a_label_is_compared_whole(label: str, memory: float, sku: str | None) -> None:
    assert model_of(label, "gpu", memory) == sku


def test_a_processor_is_the_host_whatever_its_label(fake: Fake) -> None:
    assert model_of("llvmpipe (LLVM 15.0.6, 256 bits)", "cpu") == "host"
    assert host_spec().apis == HOST_APIS
    fake("tpu", f"return [{POCL.replace('device(', 'device(api=' + repr('jax') + ', ')}]")
    (one,) = real_devices.identify(real_devices.probe())
    assert (one.sku, one.model) == ("host", None)  # no model of the processor through JAX
    fake("tpu", f"return [{CARD.replace('device(', 'device(kind=' + repr('gpu') + ', api=' + repr('jax') + ', ')}]")
    (gpu,) = real_devices.identify(real_devices.probe())
    assert (gpu.sku, gpu.model) == ("l4", None)
    with pytest.raises(errors.InputError, match="no model of l4 is reached through jax, .*another API.*or --as l4"):
        campaign.choose("tpu:0", None, Catalogue())
    assert campaign.choose("tpu:0", "l4", Catalogue()) == [("tpu:0", "l4")]


# Programs.


@pytest.mark.parametrize("name", ["opencl:1", "l4@opencl"])
def test_a_real_device_is_opened_by_its_number_or_its_sku(fake: Fake, name: str) -> None:
    fake("opencl", f"return [{POCL}, {CARD.replace('device(', 'device(1, ')}]", "context=opened")
    device = open_real_device(name)
    assert (device.compute(lambda a, b: b.__setitem__(..., a + 1), np.zeros(4)) == 1).all()
    device.close()


def test_a_sku_without_an_api_is_meant_through_its_usual_one(fake: Fake) -> None:
    fake("opencl", f"return [{CARD}]", "context=opened")
    with pytest.raises(
        errors.DeviceNotPresentError,
        match=r"'l4' not found on this host through cuda; available through other APIs: l4@opencl \(opencl:0\)",
    ):
        open_real_device("l4")
    fake("cuda", f"return [{CUDA_CARD}]", "context=opened")
    open_real_device("l4").close()


def test_what_is_not_here_is_said_with_what_is(fake: Fake) -> None:
    fake("opencl", f"return [{POCL}]", "context=opened")
    fake("wgpu", "os.abort()", "context=opened")
    fake("tpu", f"return [{POCL}]")
    for name, said in [
        ("opencl:1", "'opencl:1' not found on this host: opencl detects 1 device$"),
        ("wgpu:0", "'wgpu:0' not found on this host: .*SIGABRT.*; to install: a driver"),
        ("l4", r"'l4' not found on this host; available: opencl:0 \(host@opencl\)"),
        ("host", r"'host' not found on this host through native; .*: host@opencl \(opencl:0\)"),
    ]:
        with pytest.raises(errors.DeviceNotPresentError, match=said) as raised:
            open_real_device(name)
        assert raised.value.exit_code == 3
    for name, said in [
        ("l5", "did you mean 'l4'"),
        ("l4@cudda", "did you mean 'cuda'"),
        ("opencll:0", "did you mean 'opencl'"),
        ("opencl:first", "opencl:0"),
        ("opencl:-1", "opencl:0"),
        ("tpu:0", "executes single operations only, not programs"),
    ]:
        with pytest.raises(errors.InputError, match=said):
            open_real_device(name)


def test_selection_takes_hardware_before_software_and_says_which(fake: Fake) -> None:
    fake("opencl", f"return [{POCL}, {CARD.replace('device(', 'device(1, ')}]", "context=opened")
    backends: dict[str, Any] = {**_real_backends()}
    assert [one.detected.name for one in backends["opencl"].devices] == ["opencl:1", "opencl:0"]
    assert [one.detected.name for one in backends["gpu"].devices] == ["opencl:1"]
    assert [one.detected.name for one in backends["cpu"].devices] == ["opencl:0"]
    choice = windtunnel.select("cuda", "opencl", real=True)
    assert (choice.backend.name, choice.index) == ("opencl", 0)
    assert "not cuda: no back end of this installation detects devices with the API cuda on this host" in choice.reason
    for name, index in [("opencl:0", 1), ("opencl:1", 0), ("host@opencl", 1), ("l4", 0), ("l4@opencl", 0)]:
        assert windtunnel.select("opencl", device=name, real=True).index == index
    with pytest.raises(errors.DeviceNotPresentError, match="it reaches 2 devices, and none is 't4'"):
        windtunnel.select("opencl", device="t4", real=True)
    assert windtunnel.select(device="opencl:0", real=True).index == 1
    choice.open().close()


def test_a_software_device_is_no_gpu_and_its_reason_says_what_it_is(fake: Fake) -> None:
    fake("opencl", f"return [{POCL}, device(1, kind='fpga', software=True)]", "context=opened_software")
    with pytest.raises(errors.DeviceNotPresentError, match="not gpu: no back end detects a gpu on this host"):
        windtunnel.select("gpu", real=True)
    with pytest.raises(errors.DeviceNotPresentError, match="not fpga: opencl:1 is software, not a fpga"):
        windtunnel.select("fpga", real=True)
    assert "(software, no accelerator), the first of opencl" in windtunnel.select("opencl", real=True).reason


def test_a_device_that_runs_no_programs_is_not_chosen(fake: Fake) -> None:
    fake("tpu", f"return [{POCL.replace('device(', 'device(api=' + repr('jax') + ', ')}]")
    fake("wgpu", "raise RuntimeError('no adapter')")
    with pytest.raises(
        errors.DeviceNotPresentError,
        match="not jax: tpu:0 executes single operations only, not programs; not wgpu: RuntimeError: no adapter; "
        "to install: a driver",
    ):
        windtunnel.select("jax", "wgpu", real=True)
    backend = _real_backends()["jax"]
    with pytest.raises(
        errors.DeviceNotPresentError, match="jax has no device 0: tpu:0 executes single operations only"
    ):
        backend.context(0)


def test_a_card_on_the_bus_that_no_back_end_reaches_is_noticed(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    card = system.PciDevice("0000:17:00.0", 0x10DE, 0x2335, 3)
    monkeypatch.setattr(system, "accelerators", lambda: (card,))
    fake("opencl", f"return [{POCL}]")
    assert real_devices.without_backend(real_devices.identify(real_devices.probe())) == [card]
    fake("opencl", f"return [{CARD}]")
    assert real_devices.without_backend(real_devices.identify(real_devices.probe())) == []
