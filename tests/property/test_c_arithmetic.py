"""Arithmetic of C as the emulator executes it, against g++ on the processor: promotions, conversions, shifts, division."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import numpy as np

import windtunnel

VARIABLES = {
    "a": ("signed char", "i1"), "b": ("unsigned char", "u1"), "c": ("short", "i2"), "d": ("unsigned short", "u2"),
    "e": ("int", "i4"), "f": ("unsigned", "u4"), "g": ("long long", "i8"), "h": ("unsigned long long", "u8"),
    "x": ("float", "f4"), "y": ("double", "f8"),
}  # fmt: skip
ROWS, EXPRESSIONS = 64, 120
HOST_HEAD = """#include <stdio.h>
#include <string.h>
static long long as_bits(double v) { long long r; memcpy(&r, &v, 8); return r; }
"""


def integer(random: Random, depth: int) -> str:
    """Return an integer expression that is defined in C with wrapping signed numbers."""
    if depth == 0:
        return random.choice(
            [*"abcdefgh", str(random.randint(0, 300)), "-7", "3u", "(1ll << 33)", "'A'", "sizeof(int)"]
        )
    left, right = integer(random, depth - 1), integer(random, depth - 1)
    kind = random.choice(["signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long"])
    return random.choice(
        [
            f"({left} {random.choice('+-*&|^')} {right})",
            f"(({left}) / ((({right}) & 15) + 1))",
            f"(({left}) % ((({right}) & 15) + 1))",
            f"(({left}) << (({right}) & 7))",
            f"(({left}) >> (({right}) & 7))",
            f"(({left}) {random.choice(['<', '<=', '==', '!=', '>'])} ({right}))",
            f"(({kind})({left}))",
            f"(-({left}))",
            f"(~({left}))",
            f"(!({left}))",
            f"(({left}) ? ({right}) : e)",
            f"(({left}) && ({right}) || f)",
        ]
    )


def real(random: Random, depth: int) -> str:
    """Return a float expression of which the result is the same wherever each operation is rounded once."""
    if depth == 0:
        return random.choice([*"xyxy", "e", "b", "c", "2.5f", "0.1", "f"])
    left, right = real(random, depth - 1), real(random, depth - 1)
    return random.choice(
        [f"({left} {random.choice('+-*')} {right})", f"(({left}) / (1.5f + ({right}) * ({right})))",
         f"(float)({left})", f"(double)({left})", f"(-({left}))", f"(({left}) < ({right}) ? ({left}) : ({right}))",
         "(int)x", "(short)y"]
    )  # fmt: skip


def source(expressions: list[str], head: str) -> str:
    """Return the body of the function that computes all expressions for one row."""
    loads = " ".join(f"{kind} {name} = in_{name}[i];" for name, (kind, _) in VARIABLES.items())
    lines = [f"    whole[{len(expressions)} * i + {n}] = (long long)({text});" for n, text in enumerate(expressions)]
    return f"{head} {{\n    {loads}\n" + "\n".join(lines) + "\n}\n"


def test_expressions_have_the_values_that_a_compiler_of_the_processor_gives_them(tmp_path: Path) -> None:
    random = Random(20)
    whole = [integer(random, random.randint(1, 4)) for _ in range(EXPRESSIONS)]
    bits = [f"as_bits((double)({real(random, random.randint(1, 3))}))" for _ in range(EXPRESSIONS // 2)]
    expressions = [*whole, *bits]
    parameters = ", ".join(f"const {kind} *in_{name}" for name, (kind, _) in VARIABLES.items())
    rng = np.random.default_rng(3)
    given = {}
    for name, (_, dtype) in VARIABLES.items():
        kind = np.dtype(dtype)
        if kind.kind == "f":
            given[name] = ((rng.random(ROWS) - 0.5) * 2000).astype(kind)
        else:
            info = np.iinfo(kind)
            given[name] = rng.integers(info.min, info.max, ROWS, dtype=kind, endpoint=True)
    host = (
        HOST_HEAD
        + source(expressions, f"static void row(int i, {parameters}, long long *whole)")
        + "int main() {\n"
        + "".join(
            f"    static {kind} in_{n}[{ROWS}]; fread(in_{n}, sizeof(in_{n}), 1, stdin);\n"
            for n, (kind, _) in VARIABLES.items()
        )
        + f"    static long long whole[{ROWS * len(expressions)}];\n    for (int i = 0; i < {ROWS}; ++i) row(i, "
        + ", ".join(f"in_{n}" for n in VARIABLES)
        + ", whole);\n    fwrite(whole, sizeof(whole), 1, stdout);\n}\n"
    )
    (tmp_path / "host.cpp").write_text(host)
    program = tmp_path / "host"
    subprocess.run(
        ["g++", "-w", "-O0", "-fwrapv", "-fpermissive", "-ffp-contract=off", "-o", program, tmp_path / "host.cpp"],
        check=True,
    )
    data = b"".join(given[name].tobytes() for name in VARIABLES)
    expected = np.frombuffer(subprocess.run([program], input=data, stdout=subprocess.PIPE, check=True).stdout, np.int64)
    kernel = "__device__ long long as_bits(double v) { return __double_as_longlong(v); }\n" + source(
        expressions, f"__global__ void rows({parameters}, long long *whole)"
    ).replace("{\n", "{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n", 1)
    (tmp_path / "rows.cu").write_text(kernel)
    module = windtunnel.load(tmp_path / "rows.cu")
    for schedule in (None, 1):
        with windtunnel.device("l4", schedule=schedule) as accelerator:
            buffers = [accelerator.to_device(given[name]) for name in VARIABLES]
            out = accelerator.to_device(np.zeros(ROWS * len(expressions), np.int64))
            accelerator.launch(module.rows, 2, ROWS // 2, *buffers, out)
            result = accelerator.to_host(out)
        wrong = sorted({int(at) % len(expressions) for at in np.flatnonzero(result != expected)})
        first = np.flatnonzero(result != expected)[:1]
        assert not wrong, [(expressions[n]) for n in wrong[:3]] + [result[first], expected[first]]
