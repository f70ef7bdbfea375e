"""The console script `windtunnel`, and `python -m windtunnel`."""

from __future__ import annotations

import gc


def script() -> None:
    """Run the command line in a process of its own."""
    # Imports alone make half a million objects, and a collection after every 700 of them would take a twentieth of the
    # time; most of them stay. So this is set before anything is imported.
    gc.set_threshold(200_000, 20, 20)
    from windtunnel.cli import main

    main.script()


if __name__ == "__main__":
    script()
