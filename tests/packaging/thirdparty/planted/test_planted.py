"""Each of these has to fail, and to say why."""

import pytest
from heat import diffuse

ROD = [0.0] * 20 + [100.0] * 3 + [0.0] * 41


def test_over_budget(accelerator):
    with accelerator.expect(launches=9, time_s=1e-6):
        diffuse(accelerator, ROD, 10)


def test_device_lost(accelerator, accelerator_faults):
    accelerator_faults({"kind": "slow_copy"}, {"kind": "device_lost", "on": "launch", "call": 4})
    diffuse(accelerator, ROD, 10)


def test_by_chance(accelerator, accelerator_faults):
    accelerator_faults({"kind": "launch_failure", "probability": 0.2})
    diffuse(accelerator, ROD, 100)


def test_never_struck(accelerator, accelerator_faults):
    accelerator_faults({"kind": "link_down", "call": 3})
    diffuse(accelerator, ROD, 1)


@pytest.mark.accelerator("l4", leaks="error")
def test_leak(accelerator):
    accelerator.empty(1000)


def test_unknown_key(accelerator, accelerator_faults):
    accelerator_faults({"kind": "hang", "hang": 3.0})


@pytest.mark.accelerator("l44")
def test_unknown_device(accelerator):
    pass
