"""Uses windtunnel's plugin, and nothing else of it but its errors."""

from pathlib import Path

import numpy as np
import pytest
import simulator
from heat import diffuse

from windtunnel import errors

ROD = [0.0] * 20 + [100.0] * 3 + [0.0] * 41


def test_the_simulator_is_this_project_s_own():
    assert Path(simulator.__file__).parents[1] == Path(__file__).parents[1]
    assert not hasattr(simulator, "windtunnel")


@pytest.mark.accelerator("h100-sxm-80gb", "mi300x", "apple-m2-ultra", "rtx-4090@wgpu", leaks="error")
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_the_device_agrees_with_the_simulator(accelerator, steps):
    assert np.allclose(diffuse(accelerator, ROD, steps), simulator.rod(ROD, steps), rtol=1e-5)


def test_ten_steps_are_ten_launches_two_copies_and_little_time(accelerator):
    with accelerator.expect(time_s=200e-6, energy_j=0.1, launches=10, copied_bytes=2 * 4 * len(ROD)):
        diffuse(accelerator, ROD, 10)


@pytest.mark.parametrize("again", range(4))
def test_it_takes_the_same_time_again(accelerator, again):
    # The first time memory comes from the driver, and then from the pool.
    diffuse(accelerator, ROD, 10)
    took = []
    for _ in range(2):
        before = accelerator.clock_s
        diffuse(accelerator, ROD, 10)
        took.append(accelerator.clock_s - before)
    assert took[0] == pytest.approx(took[1], rel=1e-9)


@pytest.mark.accelerator(leaks="error")
def test_a_copy_that_fails_twice_is_tried_a_third_time(accelerator, accelerator_faults):
    plan = accelerator_faults({"kind": "copy_failure", "on": "copy_out", "times": 2})
    assert np.allclose(diffuse(accelerator, ROD, 3), simulator.rod(ROD, 3))
    assert len(plan.log) == 2


@pytest.mark.accelerator(leaks="error")
@pytest.mark.parametrize("call", [1, 2])
def test_nothing_is_left_when_memory_runs_out(accelerator, call):
    with accelerator.faults({"kind": "out_of_memory", "call": call}), pytest.raises(errors.DeviceOutOfMemory):
        diffuse(accelerator, ROD, 3)


@pytest.mark.accelerator("l4", faults={"kind": "device_lost", "on": "launch", "call": 3}, leaks="error")
def test_a_lost_device_is_told_and_usable_after_a_reset(accelerator):
    with pytest.raises(errors.DeviceLost, match="launch spread on l4"):
        diffuse(accelerator, ROD, 3)
    accelerator.reset()
    assert np.allclose(diffuse(accelerator, ROD, 3), simulator.rod(ROD, 3))


def test_a_throttled_device_is_late_and_right(accelerator):
    @accelerator.faults({"kind": "throttle", "factor": 50.0, "probability": 1.0})
    def slowly():
        return diffuse(accelerator, ROD, 10)

    diffuse(accelerator, ROD, 10)
    usual = accelerator.clock_s
    assert np.allclose(slowly(), simulator.rod(ROD, 10), rtol=1e-5)
    assert accelerator.clock_s > 2.1 * usual
