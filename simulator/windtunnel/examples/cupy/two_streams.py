"""A sum in one stream of what another stream computes, with CuPy. An event is missing, and the race is reported.

windtunnel emulate docs/examples/cupy/two_streams.py          # exit code 1, with both lines
windtunnel emulate docs/examples/cupy/two_streams.py mended   # exit code 0
"""

import sys

import cupy as cp

square = cp.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")


def main(mended):
    values = cp.arange(1000, dtype=cp.float32)
    squares = cp.empty_like(values)
    cp.cuda.Device().synchronize()
    producer, consumer = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    with producer:
        square(values, squares)
        done = producer.record()
    with consumer:
        if mended:
            consumer.wait_event(done)
        total = squares.sum()
    consumer.synchronize()
    print(f"the sum is {float(total):.0f}")


if __name__ == "__main__":
    main("mended" in sys.argv[1:])
