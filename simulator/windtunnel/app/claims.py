"""`windtunnel claims`: the figures of the founding documents compared with the models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from windtunnel.core.results.claims import ClaimVerdict
from windtunnel.library.devices import emulator
from windtunnel.simulation.run import one_job_s
from windtunnel_models.catalogue import Catalogue, shipped_catalogue
from windtunnel_models.catalogue import device_model as device


def claims(only: str | None = None, catalogue: Catalogue | None = None) -> list[ClaimVerdict]:
    """Compare every figure of the founding documents with the models and with physical bounds.

    Args:
        only: The only group of claims to evaluate.
        catalogue: The catalogue of models.

    Raises:
        InputError: if there is no such group.
    """
    from windtunnel.claims.evaluate import report
    from windtunnel.claims.models import Setting

    catalogued = catalogue or shipped_catalogue()
    return report(Setting(partial(device, catalogue=catalogued), one_job_s, emulate=emulator()), only)


def claims_text(verdicts: Sequence[ClaimVerdict]) -> str:
    """Return the verdicts as text."""
    from windtunnel.claims.evaluate import VERDICTS
    from windtunnel.report import claims as report

    return report.claims_text(verdicts, VERDICTS)
