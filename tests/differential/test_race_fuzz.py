"""Random kernels: no race is missed, and none is reported that is not there (see race_fuzz.py)."""

from __future__ import annotations

from collections import Counter

from tests.differential.race_fuzz import check

SEEDS = range(100)


def test_the_detectors_report_the_races_of_random_kernels_and_no_others() -> None:
    kinds = Counter(check(seed) for seed in SEEDS)
    # Both kinds are frequent, so that neither a blind detector nor one that always reports would pass.
    assert set(kinds) == {"race", "clean"}
    assert min(kinds.values()) > len(SEEDS) // 4
