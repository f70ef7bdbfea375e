"""Random scenarios over all features: both engines agree, and the laws of every run hold (see fuzz.py)."""

from __future__ import annotations

from tests.differential.fuzz import check, features, scenario

SEEDS = range(60)
FEATURES = {
    "autoscale", "closed", "continuous", "faults of operations", "faults", "gangs", "generate", "power budget", "request",
    "streams of a job", "streams of a device",
}  # fmt: skip


def test_both_engines_agree_on_random_scenarios_over_all_features() -> None:
    outcomes = {seed: check(seed) for seed in SEEDS}
    assert {seed: outcome for seed, outcome in outcomes.items() if outcome != "checked"} == {}


def test_the_random_scenarios_combine_the_features() -> None:
    """Among 1,000 seeds every pair of features occurs, except for pairs that are refused."""
    seen: set[frozenset[str]] = set()
    for seed in range(1_000):
        present = features(scenario(seed)[0])
        seen |= {frozenset((one, other)) for one in present for other in present}
    refused = {
        frozenset(pair)
        for pair in (
            ("continuous", "gangs"),
            ("continuous", "request"),
            ("continuous", "streams of a device"),
            ("continuous", "streams of a job"),
            ("gangs", "request"),
            ("request", "streams of a device"),
            ("request", "streams of a job"),
        )
    }
    every = {frozenset((one, other)) for one in FEATURES for other in FEATURES}
    assert every - seen == refused - seen and not refused & seen
