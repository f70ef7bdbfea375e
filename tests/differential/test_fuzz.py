"""Random scenarios over all features: both engines agree, and the laws of every run hold (see fuzz.py)."""

from __future__ import annotations

from tests.differential.fuzz import check, features, scenario

PAIRS = (73, 77, 86, 118, 131, 135, 172, 196, 238, 283, 323, 766)
"""Seeds of scenarios with pairs of features that the first 60 do not have."""
SEEDS = [*range(60), *PAIRS, 328]
"""328: a controller decides while the only device with work is reset after a failed operation."""
FEATURES = {
    "autoscale", "closed", "continuous", "faults of operations", "faults", "gangs", "generate", "power budget", "request",
    "streams of a job", "streams of a device", "checkpoints", "preemption", "patience", "pauses", "domains", "designs",
    "prefix caches", "speculation", "adapters",
}  # fmt: skip
ALONE = ("continuous", "prefix caches", "speculation", "adapters", "request", "streams of a job", "streams of a device")
"""What neither checkpoints nor preemption combine with, on the fleets of the fuzz."""


def test_both_engines_agree_on_random_scenarios_over_all_features() -> None:
    outcomes = {seed: check(seed) for seed in SEEDS}
    assert {seed: outcome for seed, outcome in outcomes.items() if outcome != "checked"} == {}


def test_the_random_scenarios_combine_the_features() -> None:
    """In the scenarios that are checked every pair of features occurs, except for pairs that are refused."""
    refused = {
        frozenset(pair)
        for pair in (
            ("continuous", "designs"),
            ("continuous", "gangs"),
            ("continuous", "request"),
            ("continuous", "streams of a device"),
            ("continuous", "streams of a job"),
            *(
                (one, other)
                for one in ("prefix caches", "speculation", "adapters")
                for other in ("designs", "gangs", "request", "streams of a device", "streams of a job")
            ),
            ("designs", "generate"),
            ("gangs", "request"),
            ("request", "streams of a device"),
            ("request", "streams of a job"),
            *((one, other) for one in ("checkpoints", "preemption") for other in ALONE),
        )
    }
    missing = {frozenset((one, other)) for one in FEATURES for other in FEATURES} - refused
    for seed in SEEDS:
        present = features(scenario(seed)[0])
        seen = {frozenset((one, other)) for one in present for other in present}
        assert not refused & seen
        missing -= seen
    assert missing == set()
