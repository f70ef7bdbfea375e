"""States which scenarios the compiled engine supports; it does not import Numba."""

from __future__ import annotations

from windtunnel.engine.prepare.prepared import PreparedRun


def unsupported_feature(prepared: PreparedRun) -> str | None:
    """Return the feature of a scenario that only the process engine supports; None if there is none.

    A user's own policy may still not compile: ``run.policy_compile_error`` finds that.
    """
    return "devices of this host" if prepared.real else None
