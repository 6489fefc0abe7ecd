"""Outgoing requests reach public addresses only (security list, lines 11 and 12)."""

import pytest

from skald_core.runtime.http import RefusedTarget, client, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "::1", "::ffff:7f00:1", "::ffff:169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "0.0.0.0", "169.254.169.254", "fd00::1", "fe80::1%eth0", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "224.0.0.1", "255.255.255.255", "::",
    ],
)  # fmt: skip
def test_private_forms_are_not_public(address: str) -> None:
    """Every way of writing a private, loopback, link-local, shared, multicast or translated address."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are(address: str) -> None:
    """Ordinary addresses, also through NAT64."""
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://[::1]/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://localhost/",
        "http://localhost./", "http://user@127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://127.1/",
    ],
)  # fmt: skip
async def test_requests_to_this_machine_are_refused(url: str) -> None:
    """The resolved address decides, whatever the URL looks like."""
    async with client(allow_private=False) as http:
        with pytest.raises((RefusedTarget, OSError, Exception)) as caught:
            await http.get(url)
        assert type(caught.value).__name__ in {"RefusedTarget", "ConnectError", "InvalidURL", "UnsupportedProtocol"}
