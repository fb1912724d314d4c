"""The measurement of drift measures what it says."""

from sheafstate.benchmarks.precision import measure_drift


def test_drift_is_small_and_repeatable() -> None:
    drift = measure_drift(seed=0, length=90)
    assert drift == measure_drift(seed=0, length=90)
    assert 0 < drift.largest < 1e-2
    assert drift.address_margin > 0
    assert drift.expert_margin > 0
    assert drift.positions <= 90
