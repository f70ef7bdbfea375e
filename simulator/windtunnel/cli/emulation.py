"""`windtunnel emulate`: programs written for Numba CUDA or CuPy, on emulated devices."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--device", default="h100-sxm-80gb", show_default=True, metavar="SKU", help="The emulated device: SKU or SKU@API."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also report unordered writes of one equal value, indices beyond a slice inside of its array, and fences "
    "that are missing after an atomic operation.",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, which is run as by `python -m`.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def emulate(device: str, strict: bool, is_module: bool, script: Path, arguments: Sequence[str]) -> None:
    """Run SCRIPT, a program written for Numba CUDA or CuPy, on an emulated device.

    `numba.cuda` and `cupy` are Windtunnel's implementations, whether or not a GPU, numba-cuda or CuPy is present. Exit
    codes: 1 if a finding was reported (a data race, an index out of bounds, ...), otherwise the script's own; 2 if
    there is no such device, file or module.
    """
    from windtunnel.app.emulate import emulate as run

    sys.exit(run(script, arguments, device, strict=strict, is_module=is_module))
