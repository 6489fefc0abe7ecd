"""When a failed call is repeated, and how long it waits."""

from __future__ import annotations

import email.utils
from typing import Any

import pytest

from skald_core.api import ConfigError, RetryPolicy, parse_retry_after


def test_backoff_doubles_up_to_its_cap_with_jitter() -> None:
    """1, 2, 4 … 30 seconds, a fifth up or down."""
    policy = RetryPolicy(max_retries=10)
    assert [policy.wait(n, None, 0.5) for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.wait(0, None, 0.0) == pytest.approx(0.8)
    assert policy.wait(0, None, 1.0) == pytest.approx(1.2)
    assert policy.wait(10, None, 0.5) is None


def test_a_hint_is_kept_exactly_or_ends_the_call() -> None:
    """No jitter on what the server asked for; two minutes is the most anybody waits."""
    policy = RetryPolicy(max_retries=1)
    assert policy.wait(0, 45.0, 0.9) == 45.0
    assert policy.wait(0, 120.0, 0.0) == 120.0
    assert policy.wait(0, 121.0, 0.0) is None
    assert policy.wait(1, 1.0, 0.0) is None


@pytest.mark.parametrize("bad", [-1, 1.5, True])
def test_a_bad_number_of_retries_is_refused(bad: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match="max_retries"):
        RetryPolicy(max_retries=bad)


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": email.utils.formatdate(1030, usegmt=True)}, 30.0),
        ({"retry-after": email.utils.formatdate(900, usegmt=True)}, 0.0),
        ({"retry-after": "1", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Wed, 99 Foo 2026 99:99:99 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], want: float | None) -> None:
    """Seconds or a date; nonsense is no hint."""
    assert parse_retry_after(headers, 1000.0) == want
