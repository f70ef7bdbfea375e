"""Limits on waiting, and the environment variable that multiplies them."""

from __future__ import annotations

import pytest

from windtunnel.core.errors import InputError
from windtunnel.core.time_limits import VARIABLE, time_limit


def test_a_limit_is_multiplied_by_the_factor_and_is_as_stated_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, limit_s in (("", 4.0), (" ", 4.0), ("1", 4.0), ("2.5", 10.0), ("0.5", 2.0), ("1e2", 400.0)):
        monkeypatch.setenv(VARIABLE, text)
        assert time_limit(4.0) == limit_s, text
    monkeypatch.delenv(VARIABLE)
    assert time_limit(4.0) == 4.0


def test_a_factor_that_is_not_a_positive_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "-1", "inf", "nan", "ten"):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(InputError, match=f"WINDTUNNEL_TIMEOUT_FACTOR is '{text}'; expected a positive number"):
            time_limit(1.0)
