"""The page of `windtunnel explore`: what does not change. Its script fills in the controls and what is simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windtunnel.report import page


def render(
    *,
    name: str,
    lead: str | None,
    file: str,
    options: Sequence[Sequence[str]],
    controls: Sequence[Mapping[str, object]],
    timed: Sequence[str],
) -> tuple[str, str]:
    """Return the page as an HTML document, and its Content-Security-Policy.

    Args:
        name: The scenario.
        lead: Its description.
        file: Its file.
        options: The options of the command line that changed it before the page began, each with its value.
        controls: The controls, as the script reads them.
        timed: The figures of times that the scenario's targets limit, such as ``ttft p99``.
    """
    data = {"controls": controls, "timed": timed, "file": file, "options": options}
    return page.render_live(name=name, lead=lead, file=file, data=data)
