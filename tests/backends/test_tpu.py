"""JAX's back end: its words where JAX is not installed; where it is, its numbers against NumPy's in float64.

JAX is not among what the tests require (597 MB). Where it is not installed the tests that need it do not exist.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from windtunnel.backends.common.host_work import llc_bytes
from windtunnel.backends.discovery.probe import forget, probe
from windtunnel.backends.discovery.registry import backend
from windtunnel.core import errors
from windtunnel.core.ops import OPERATIONS

TPU = backend("tpu")
INSTALLED = find_spec("jax") is not None


def parsed(op_name: str, **given: Any) -> dict[str, Any]:
    return {column.name: column.parse(given.get(column.name, column.default)) for column in columns(op_name)}


def columns(op_name: str) -> Any:
    return OPERATIONS.find(op_name).all_columns()


def test_where_jax_is_not_installed_it_is_absent_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)  # what the import system takes for a package that is not here
    with pytest.raises(errors.DeviceNotPresentError, match=r"tpu:0 not found: .*jax.*; pip install 'jax\[tpu\]'"):
        TPU.operations(0)
    with pytest.raises(ModuleNotFoundError):
        TPU.find()
    assert TPU.context is None  # no programs


def test_it_is_present_exactly_where_jax_is_installed() -> None:
    (found,) = probe(["tpu"])
    assert TPU.present() is INSTALLED is found.present
    if not INSTALLED:
        assert found.failure == "absent"


if INSTALLED:

    @pytest.fixture(scope="module")
    def device() -> Any:
        opened = TPU.operations(0)
        yield opened
        opened.close()

    def test_a_processor_is_no_tpu_and_says_so(device: Any) -> None:
        forget()
        (found,) = probe(["tpu"])
        cpu = device.device.platform == "cpu"
        assert found.devices[0] == device.found
        assert (found.devices[0].software, found.devices[0].kind == "cpu") == (cpu, cpu)
        assert ("no TPU" in found.devices[0].label) is cpu
        assert device.info.software is cpu and not device.info.virtual and device.versions["jax"] in device.info.driver

    SMALL: list[tuple[str, dict[str, Any]]] = [
        *(
            ("gemm", {"m": 65, "n": 48, "k": 130, "dtype": dtype, "batch": batch})
            for dtype in ("float32", "float16", "bfloat16", "int8")
            for batch in (1, 3)
        ),
        *(
            ("elementwise", {"op": op, "rows": 40, "width": 33, "dtype": dtype})
            for op in next(column.choices for column in columns("elementwise") if column.name == "op")
            for dtype in ("float32", "float16", "bfloat16")
        ),
        *(
            ("attention", {"phase": phase, "batch": 2, "heads": 4, "kv_heads": kv, "head_dim": 16, "kv_tokens": 50}
             | {"dtype": dtype, "kv_dtype": dtype})
            for phase in ("prefill", "decode")
            for dtype in ("float32", "bfloat16")
            for kv in (1, 4)
        ),
        *(
            ("copy", {"bytes": 70_001, "direction": direction, "memory": "pageable", "cache": cache})
            for direction in ("h2d", "d2h", "d2d")
            for cache in ("cold", "warm")
        ),
        ("launch", {"count": 5}),
    ]  # fmt: skip

    @pytest.mark.parametrize(
        ("op", "given"), SMALL, ids=[f"{op}-{'-'.join(map(str, given.values()))}" for op, given in SMALL]
    )
    def test_an_operation_is_timed_and_its_numbers_are_right(device: Any, op: str, given: dict[str, Any]) -> None:
        trial = device.trial(op, parsed(op, **{"cache": "warm"} | given))
        assert trial.run() > 0 and trial.run(3) > 0 and trial.timer == "host" and "JAX" in trial.note
        assert 0.0 <= trial.check() <= 1.0
        trial.close()
        trial.close()
        with pytest.raises(errors.InvalidArgument, match="the trial is closed"):
            trial.run()

    @pytest.mark.parametrize("op", ["gemm", "elementwise", "attention"])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_numbers_that_are_off_by_two_roundings_too_many_or_none_at_all_are_told(
        device: Any, op: str, dtype: str
    ) -> None:
        import numpy as np

        given = next(given for name, given in SMALL if name == op and given["dtype"] == dtype)
        trial = device.trial(op, parsed(op, **given))
        with pytest.raises(errors.InvalidArgument, match="nothing has run"):
            trial.check()
        trial.run()
        right = np.asarray(trial._last)
        for factor in (1.05, math.nan):
            trial._last = (right.astype(np.float64) * factor).astype(right.dtype)
            trial._off = None  # not of this run any more
            assert trial.check() > 1.0

    @pytest.mark.parametrize("direction", ["h2d", "d2h", "d2d"])
    def test_one_wrong_byte_of_a_copy_is_told(device: Any, direction: str) -> None:
        import numpy as np

        trial = device.trial("copy", parsed("copy", bytes=1000, direction=direction, memory="pageable"))
        trial.run(2)
        wrong = np.array(trial._last)
        wrong[500] ^= 1
        trial._last = wrong
        assert trial.check() == math.inf

    def test_a_copy_to_the_device_is_to_memory_of_its_own(device: Any) -> None:
        for size in (1, 64, 4096, 1_000_000):
            trial = device.trial("copy", parsed("copy", bytes=size, direction="h2d", memory="pageable", cache="warm"))
            trial.run()
            assert trial._last.unsafe_buffer_pointer() != trial._hosts[0].ctypes.data
            trial._hosts[0][:] ^= 1
            assert trial.check() == 0.0

    def test_cold_operands_are_more_bytes_than_the_caches_hold_and_warm_ones_are_one_set(device: Any) -> None:
        size = 3 * 4 * 128 * 128
        given = {"m": 128, "n": 128, "k": 128, "dtype": "float32"}
        cold, warm = (device.trial("gemm", parsed("gemm", **given, cache=cache)) for cache in ("cold", "warm"))
        addresses = {operand.unsafe_buffer_pointer() for operands in cold._held for operand in operands}
        assert len(addresses) == 2 * len(cold._held) > 2 == 2 * len(warm._held)

        assert len(cold._held) * size * 2 / 3 >= 2 * llc_bytes().bytes or not device.found.software

    @pytest.mark.parametrize(
        ("op", "given", "said"),
        [
            ("gemm", {"m": 8, "n": 8, "k": 8, "dtype": "fp8"}, "only in float32, float16, bfloat16, int8"),
            ("gemm", {"m": 8, "n": 8, "k": 8, "dtype": "float32", "dispatch": "graph"}, "no graphs to replay"),
            ("gemm", {"m": 8, "n": 8, "k": 8, "dtype": "float32", "clock": "sustained"}, "clock=burst"),
            ("copy", {"bytes": 8, "direction": "d2d", "dispatch": "eager"}, "timed as it is"),
            ("launch", {"mode": "persistent"}, "no launch of mode persistent"),
            ("copy", {"bytes": 8, "direction": "h2d"}, "pageable memory, not pinned"),
            ("aes", {"bytes": 8}, "does not support 'aes'"),
        ],
    )
    def test_what_it_does_not_do_is_refused_in_words(device: Any, op: str, given: dict[str, Any], said: str) -> None:
        asked = parsed(op, **given)
        assert said in str(device.refusal(op, asked))
        with pytest.raises(errors.UnsupportedOperationError, match=said):
            device.trial(op, asked)

    def test_launched_one_by_one_is_all_that_a_processor_has_and_is_not_asked_for_by_two_names(device: Any) -> None:
        said = device.refusal("launch", parsed("launch", dispatch="eager"))
        assert (said is not None) is device.info.software
        device.info, before = dataclasses.replace(device.info, software=False), device.info
        assert device.refusal("launch", parsed("launch", dispatch="eager")) is None
        device.info = before

    def test_what_does_not_fit_is_out_of_memory(device: Any) -> None:
        with pytest.raises(errors.DeviceOutOfMemory, match="needs .* for gemm, of at most"):
            device.trial("gemm", parsed("gemm", m=2**21, n=2**21, k=2**21, dtype="float32"))

    def test_a_closed_device_refuses_and_so_do_its_trials(device: Any) -> None:
        opened = TPU.operations(0)
        trial = opened.trial("launch", parsed("launch"))
        opened.close()
        opened.close()
        for call in (trial.run, lambda: opened.trial("launch", parsed("launch"))):
            with pytest.raises(errors.InvalidArgument, match="closed"):
                call()

    def test_an_index_that_jax_does_not_have_is_not_present() -> None:
        with pytest.raises(errors.DeviceNotPresentError, match="tpu:99 not found: tpu has"):
            TPU.operations(99)
