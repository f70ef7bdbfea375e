"""States which scenarios the compiled engine supports; it does not import Numba."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.core.policy import OwnFunction
from windtunnel.engine.prepare.prepared import PreparedRun


def unsupported_feature(prepared: PreparedRun) -> str | None:
    """Return the feature of a scenario that only the process engine supports; None if there is none.

    A user's own policy may still not compile: ``run.policy_compile_error`` finds that.
    """
    return "devices of this host" if prepared.real else None


def is_foreign(of_policy: Callable[..., object] | None) -> bool:
    """Return whether a function of a policy is not part of Windtunnel, so that it may not compile."""
    return of_policy is not None and (
        isinstance(of_policy, OwnFunction) or not of_policy.__module__.startswith("windtunnel.")
    )
