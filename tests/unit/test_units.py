"""Quantities: text with units to SI and back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.core.units import format_quantity, parse_quantity, to_unit


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1 ms", "s", 1e-3),
        ("57600 /s", "/s", 57600.0),
        ("2.5 USD/h", "USD/h", 2.5 / 3600),
        ("80 GB", "B", 80e9),
        ("80 GiB", "B", 80 * 2**30),
        ("100 Gbit/s", "B/s", 12.5e9),
        ("8 bit", "B", 1.0),
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("1979 TOP/s", "FLOP/s", 1979e12),
        ("1.98 GHz", "/s", 1.98e9),
        ("2 %", "1", 0.02),
        ("1e3 us", "s", 1e-3),
        ("3 kWh", "J", 3 * 3.6e6),
        ("10 min", "s", 600.0),
        ("1e12 B", "B", 1e12),
        ("120 jobs/s", "/s", 120.0),
    ],
)
def test_text_becomes_si(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "say"),
    [
        ("5", "s", "has no unit"),
        ("5 GB", "s", "measured in 'GB'"),
        ("5 parsec", "s", "unknown unit"),
        ("fast", "s", "not a quantity"),
        ("1 gb", "B", "did you mean 'GB'"),
        ("1 s/", "s", "ends in '/'"),
        ("1e999 s", "s", "too large"),
        ("", "s", "not a quantity"),
        ("1 W", "J", "measured in 'W'"),
    ],
)
def test_what_is_wrong_is_named(text: str, unit: str, say: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_quantity(text, unit)
    assert say in str(caught.value)


@given(st.floats(min_value=1e-12, max_value=1e15), st.sampled_from(["s", "B", "W", "J", "/s", "USD/h", "B/s"]))
def test_what_is_written_reads_back(value: float, unit: str) -> None:
    assert parse_quantity(f"{to_unit(value, unit)!r} {unit}", unit) == pytest.approx(value, rel=1e-14)


@given(st.text(max_size=30), st.sampled_from(["s", "B", "1", "/s"]))
def test_any_text_gives_a_number_or_an_input_error(text: str, unit: str) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(parse_quantity(text, unit), float)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.00123, "s", "1.23 ms"),
        (1.5e-6, "s", "1.50 µs"),
        (89e9, "B", "89.0 GB"),
        (7200, "s", "2.00 h"),
        (2.5 / 3600, "USD/h", "2.50 USD/h"),
        (0.5, "%", "50 %"),
        (0.0, "W", "0 W"),
        (999.9, "W", "1.00 kW"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
    ],
)
def test_numbers_read_well(value: float, unit: str, shown: str) -> None:
    assert format_quantity(value, unit) == shown
