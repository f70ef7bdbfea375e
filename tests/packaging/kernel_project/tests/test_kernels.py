"""The kernels compute what NumPy does, and cost what they may."""

from pathlib import Path

import numpy as np
import pytest

import windtunnel

KERNELS = Path(__file__).parents[1] / "kernels"
BLUR = windtunnel.load(KERNELS / "blur.cu", include=[str(KERNELS / "include")])
WORDS = windtunnel.load(KERNELS / "words.cl")


def blurred(image):
    weights = np.array([0.0625, 0.25, 0.375, 0.25, 0.0625])
    for axis in (1, 0):
        padded = np.pad(image, [(2, 2) if side == axis else (0, 0) for side in (0, 1)], mode="edge")
        parts = [np.take(padded, range(k, k + image.shape[axis]), axis) for k in range(5)]
        image = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    return image


@pytest.mark.accelerator("h100-sxm-80gb", "l4")
@pytest.mark.parametrize("shape", [(24, 40), (5, 33), (1, 1)])
def test_a_blur_is_that_of_numpy(accelerator, shape):
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    height, width = shape
    source, rows, result = accelerator.to_device(image), accelerator.empty(shape, "f4"), accelerator.empty(shape, "f4")
    accelerator.launch(BLUR.blur_rows, (-(-width // 32), height), 32, source, rows, width, height)
    accelerator.launch(BLUR.blur_columns, -(-width // 32), 32, rows, result, width, height)
    np.testing.assert_allclose(accelerator.to_host(result), blurred(image), rtol=1e-5)


@pytest.mark.accelerator("h100-sxm-80gb", schedules=2)
def test_the_mean_of_a_picture_needs_one_launch(accelerator):
    values = np.random.default_rng(1).random(1000, dtype=np.float32)
    source, result = accelerator.to_device(values), accelerator.to_device(np.zeros(1, np.float32))
    with accelerator.expect(launches=1):
        accelerator.launch(BLUR.mean, 2, 64, source, result, 1000)
    assert accelerator.to_host(result)[0] == pytest.approx(values.mean(), rel=1e-5)


@pytest.mark.accelerator("arc-b580@opencl")
def test_words_are_counted_by_their_length(accelerator):
    text = b"the quick brown fox jumps over the lazy dog"
    counts = accelerator.to_device(np.zeros(16, np.uint32))
    source = accelerator.to_device(np.frombuffer(text, np.uint8))
    accelerator.launch(WORDS.words, 3, 16, source, len(text), counts, 16 * 4)
    assert accelerator.to_host(counts)[:6].tolist() == [0, 0, 0, 4, 2, 3]


@pytest.mark.accelerator("h100-sxm-80gb")
def test_a_launch_that_is_too_small_is_found(accelerator):
    source, out = accelerator.to_device(np.zeros(64, np.float32)), accelerator.empty(64, "f4")
    with pytest.raises(windtunnel.errors.OutOfBounds) as found:
        accelerator.launch(BLUR.blur_rows, (3, 1), 32, source, out, 96, 1)
    assert found.value.file.endswith("blur.cu")
