"""Published measurements that were predicted, where they show the intervals for the model error to be too narrow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Coverage:
    """How well published configurations were predicted, to which nothing was fitted.

    The shares of configurations whose measured value is in the 90% interval for the error of the models, and the
    median error of TTFT. ``source``: the file with the rows.
    """

    what: str
    configurations: int
    systems: str
    ttft: float
    tpot: float
    e2e: float
    ttft_median_error: float
    source: str

    @property
    def text(self) -> str:
        """What a reader of such an interval must know, as one sentence without a full stop."""
        return (
            f"{self.what}, the 90% intervals for the error of the models are too narrow: of {self.configurations} "
            f"published configurations ({self.systems}), {self.ttft:.0%} have a measured TTFT within them, "
            f"{self.tpot:.0%} a TPOT and {self.e2e:.0%} an end-to-end latency, and the median error of TTFT is "
            f"{self.ttft_median_error:.0%}"
        )


DISAGGREGATED = Coverage(
    what="With disaggregated serving",
    configurations=19,
    systems="DeepSeek V3 on H100 and B200",
    ttft=0.58,
    tpot=0.84,
    e2e=0.95,
    ttft_median_error=0.694,
    source="reports/validation/published/serving_disaggregated.md",
)
"""Of the rows that state their groups. A test compares these figures with ``source``, which the benchmark writes."""
