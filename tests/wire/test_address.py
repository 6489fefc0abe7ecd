"""Addresses as people type them."""

from __future__ import annotations

import pytest

from skald_core.api import ConfigError, parse_server_address


@pytest.mark.parametrize(
    ("typed", "base", "label", "port", "loopback"),
    [
        (" https://api.example.org/v1/ ", "https://api.example.org", "api.example.org", None, False),
        ("HTTPS://h/x/v1/chat//", "https://h/x", "h", None, False),
        ("http://[::1]:80/v1", "http://[::1]:80", "[::1]:80", 80, True),
        ("http://127.0.0.2:8080", "http://127.0.0.2:8080", "127.0.0.2:8080", 8080, True),
        ("http://box.localhost:1/v1/chat/v1", "http://box.localhost:1/v1/chat", "box.localhost:1", 1, True),
    ],
)
def test_addresses(typed: str, base: str, label: str, port: int | None, loopback: bool) -> None:
    """What people paste too much of is left off, each ending once."""
    address = parse_server_address(typed, tails=("/chat", "/v1"))
    assert (address.base_url, address.label, address.port, address.loopback) == (base, label, port, loopback)
    assert address.url("/x") == base + "/x"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("", "must start with https"),
        ("host/v1", "must start with https"),
        ("ftp://host", "must start with https"),
        ("https://", "not a valid address"),
        ("http://h:99999", "not a valid address"),
        ("http://[::1", "not a valid address"),
        ("http://a b", "not a valid address"),
        ("http://h\\x", "not a valid address"),
        ("http://me:secret@h", "name or password. Put the key"),
        ("http://h/v1?k=secret", "out: 'http://h/v1'."),
        ("http://h#secret", "out: 'http://h'."),
    ],
)
def test_addresses_that_make_no_sense(typed: str, says: str) -> None:
    """Each is refused with what to change, and without repeating a secret."""
    with pytest.raises(ConfigError) as caught:
        parse_server_address(typed)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_settings_own_name_is_used() -> None:
    """A provider without a key does not speak of one."""
    with pytest.raises(ConfigError, match=r"^The address must not hold a name or password\.$"):
        parse_server_address("http://a:b@h", field="address", takes_key=False)
