"""The pytest plugin: installed with the package, and imports nothing of Windtunnel's until it is used.

So far it tells in the header that Windtunnel is here and gives the fixture ``windtunnel_run``, which simulates a
scenario inside a test. Emulated accelerators join it with the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from windtunnel.app import Run


def pytest_report_header() -> str:
    """One line in pytest's header, so that a log says which Windtunnel a test ran with."""
    from windtunnel import __version__

    return f"windtunnel: {__version__}"


@pytest.fixture
def windtunnel_run() -> Callable[..., Run]:
    """Simulate a scenario (a path, or plain data as a file would hold it) and return its Run.

    ``windtunnel_run("fleet.yaml", changes=["fleet[0].count=3"]).result["latency_s"]["p99"]["value"]``
    """

    def simulate(scenario: Any, **options: Any) -> Run:
        from windtunnel import app
        from windtunnel.core.yamlfile import Document

        stated = app.checked(Document(scenario, "scenario")) if isinstance(scenario, dict) else scenario
        return app.run(stated, **options)

    return simulate
