"""Selection of a back end: the first that has a device, the reasons for the others, and no substitute for a missing one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel
from windtunnel.backends.discovery import real_devices
from windtunnel.core import errors
from windtunnel.core.recommendation import MATRIX
from windtunnel.emulator.device.backend import EmulatedBackend
from windtunnel.emulator.device.timeline import Host
from windtunnel.library.devices import _emulated_backends
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.selection import select
from windtunnel_models.kinds import kind_names
from windtunnel_models.specs import api_names

SEED = ("cuda", "metal", "wgpu", "cpu")
KNOWN = windtunnel.catalogue()


@pytest.mark.parametrize(
    ("machine", "label", "passed"),
    [
        (["l4", "apple-m1"], "l4", []),
        (["apple-m1"], "apple-m1", ["cuda"]),
        (["arc-a770"], "arc-a770@wgpu", ["cuda", "metal"]),
        (["epyc-9654"], "epyc-9654", ["cuda", "metal", "wgpu"]),
    ],
)
def test_the_first_back_end_with_a_device_is_chosen_and_says_why(
    machine: list[str], label: str, passed: list[str]
) -> None:
    choice = windtunnel.select(*SEED, machine=machine)
    assert choice.info.name == label
    assert [name for name, _ in choice.passed] == passed
    assert choice.reason.startswith(f"{choice.backend.name}: {label}, the first of cuda, metal, wgpu, cpu that is here")
    for name in passed:
        assert f"not {name}: the emulated machine ({machine[0]}) has no device that it reaches" in choice.reason


def test_what_is_chosen_opens_and_computes_on_the_clock_that_is_given() -> None:
    host = Host()
    device = windtunnel.select("metal", machine=["apple-m1"], host=host).open()
    assert (device.info.api, device.name, device.info.virtual) == ("metal", "apple-m1", True)
    opened_s = device.clock_s
    assert opened_s > 0  # opening took the API's time on that clock; `info` had taken none
    assert (device.compute(lambda a, b: b.__setitem__(..., a + 1), np.zeros(4)) == 1).all()
    assert device.clock_s == host.now / 1e12 > opened_s


def test_where_none_has_a_device_each_name_says_why() -> None:
    with pytest.raises(errors.DeviceNotPresentError) as raised:
        windtunnel.select("cuda", "metal", machine=["mi300x"])
    assert raised.value.exit_code == 3
    assert str(raised.value) == (
        "none of cuda, metal is here; not cuda: the emulated machine (mi300x) has no device that it reaches; "
        "not metal: the emulated machine (mi300x) has no device that it reaches"
    )


def test_a_device_asked_for_by_name_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = windtunnel.select("wgpu", "cuda", device="l4", machine=["h100-sxm-80gb", "l4"])
    assert choice.info.name == "l4@wgpu"
    through = windtunnel.select("wgpu", "cuda", device="l4@cuda", machine=["h100-sxm-80gb", "l4"])
    assert through.info.name == "l4" and through.passed[0][0] == "wgpu"
    with pytest.raises(
        errors.DeviceNotPresentError, match=r"'l4' is not here: none of cuda, cpu has it; not cuda: it reaches 1"
    ):
        windtunnel.select("cuda", "cpu", device="l4", machine=["h100-sxm-80gb", "epyc-9654"])
    # Nor is a real one, which tests/backends has more of: here no driver answers.
    monkeypatch.setattr(real_devices, "probe", lambda _names=None: [])
    with pytest.raises(
        errors.DeviceNotPresentError, match=r"'l4' is not here: .*no back end .* with the API cuda on this"
    ):
        windtunnel.select("cuda", device="l4", real=True)
    with pytest.raises(errors.DeviceNotPresentError, match="not cpu: no back end detects a cpu on this host"):
        windtunnel.select(*SEED, real=True)


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (("cuda", "mtal"), {}, "did you mean 'metal'"),
        ((), {}, "either back ends or a use case"),
        (("cuda",), {"use_case": "ml inference"}, "either back ends or a use case"),
        ((), {"use_case": "ml inferense"}, "did you mean 'ml inference'"),
        (("cuda",), {"device": "l5"}, "did you mean 'l4'"),
        (("cuda",), {"machine": ["l5"]}, "did you mean 'l4'"),
        (("cuda",), {"device": "l5", "real": True}, "did you mean 'l4'"),
    ],
)
def test_slips_are_input_errors_even_where_an_earlier_name_would_do(names: Any, options: Any, said: str) -> None:
    with pytest.raises(errors.InputError, match=said):
        windtunnel.select(*names, **options)


@pytest.mark.parametrize("use", MATRIX)
def test_each_use_is_answered_by_its_row_of_the_matrix(use: str) -> None:
    row = MATRIX[use]
    choice = windtunnel.select(use_case=use)
    assert choice.backend.name == row.primary[0]
    assert f"{row.primary[0]}, the primary: {choice.info.name}, the first for '{use}' that is here" in choice.reason
    assert row.preference(api=choice.info.api, kind=choice.info.kind) == 0


def test_the_matrix_is_gone_through_in_order_with_equals_as_they_are_stated() -> None:
    choice = windtunnel.select(use_case="ml inference", machine=["apple-m1"])
    assert choice.info.name == "apple-m1"
    assert [name for name, _ in choice.passed] == ["cuda, the primary", "tpu, the primary"]
    assert "metal, the alternative" in choice.reason
    with pytest.raises(
        errors.DeviceNotPresentError, match="none for 'ultra-low latency' is here; not fpga, the primary"
    ):
        windtunnel.select(use_case="ultra-low latency", machine=["l4"])


def test_every_api_reaches_what_the_catalogue_says_and_no_more() -> None:
    backends = _emulated_backends(None, None, KNOWN)
    for api in api_names():
        backend = backends[api]
        assert isinstance(backend, EmulatedBackend)
        assert backend.count() == sum(api in spec.apis for spec in KNOWN.specs()) > 0
        assert backend.info(0).api == backend.context(0).info.api == api
        with pytest.raises(errors.DeviceNotPresentError, match=f"emulated {api} has no device {backend.count()}"):
            backend.info(backend.count())
    for kind in kind_names():
        if kind not in api_names():
            assert backends[kind].info(0).kind == kind


SKUS = ["l4", "mi300x", "apple-m1", "epyc-9654", "tpu-v6e", "alveo-u250"]
NAMES = ["cuda", "hip", "metal", "wgpu", "vulkan", "opencl", "tpu", "fpga", "cpu", "gpu"]


@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True),
    st.lists(st.sampled_from(SKUS), max_size=4, unique=True),
)
def test_whatever_is_preferred_only_what_has_a_device_is_chosen_and_only_what_has_none_passed_over(
    preferred: list[str], machine: list[str]
) -> None:
    specs = [KNOWN.spec(sku) for sku in machine]
    able = [name for name in preferred if any(name in (*spec.apis, spec.kind) for spec in specs)]
    if not able:
        with pytest.raises(errors.DeviceNotPresentError) as raised:
            windtunnel.select(*preferred, machine=machine, catalogue=KNOWN)
        assert all(f"not {name}: " in str(raised.value) for name in preferred)
        return
    choice = windtunnel.select(*preferred, machine=machine, catalogue=KNOWN)
    assert choice.backend.name == able[0]
    assert [name for name, _ in choice.passed] == preferred[: preferred.index(able[0])]
    assert choice.info.name.partition("@")[0] in machine


def test_a_driver_that_does_not_answer_is_passed_over_with_its_own_words() -> None:
    class Broken(EmulatedBackend):
        def count(self) -> int:
            raise errors.DeviceLost(
                "no reply", operation="count", device="cuda", code=code_of("cuda", errors.DeviceLost)
            )

    known = _emulated_backends(["l4"], None, KNOWN)
    broken = Broken("cuda", [], known["cuda"].make, "")  # type: ignore[attr-defined]
    choice = select(["cuda", "vulkan"], {**known, "cuda": broken})
    assert choice.info.name == "l4@vulkan"
    assert "not cuda: count on cuda: no reply: cuda error 46 (cudaErrorDevicesUnavailable)" in choice.reason
