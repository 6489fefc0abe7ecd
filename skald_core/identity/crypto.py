"""Keys: Argon2id derivation and the sealed data key.

A random 256-bit data key encrypts a user's file. It is sealed with AES-256-GCM under Argon2id(password); the AEAD tag is
the password check, so nothing that could verify a guess faster is stored. Argon2id follows RFC 9106 (m = 256 MiB, t = 3,
p = 1); a derivation runs off the event loop and at most two run at once, since each takes 256 MiB.
"""

from __future__ import annotations

import asyncio
import hmac
import os

import msgspec
from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from skald_core.errors import SkaldError

__all__ = ("KdfParams", "KeyDeriver", "constant_time_equal", "new_data_key", "new_salt", "seal", "unseal")

_NONCE = 12


class KdfParams(msgspec.Struct, frozen=True):
    """Argon2id cost, stored per user so that it can rise later. ``memory_kib`` is in KiB."""

    memory_kib: int = 262_144
    time: int = 3
    lanes: int = 1
    algorithm: str = "argon2id"


class KeyDeriver:
    """Runs Argon2id with bounded concurrency."""

    def __init__(self, params: KdfParams = KdfParams(), *, at_once: int = 2) -> None:
        self.params = params
        self._slots = asyncio.Semaphore(at_once)

    async def derive(self, password: str, salt: bytes, params: KdfParams | None = None) -> bytes:
        """32 bytes. Raises SkaldError for an algorithm this version does not know."""
        p = params or self.params
        if p.algorithm != "argon2id":
            raise SkaldError(f"this account's key uses {p.algorithm!r}, which this version cannot derive; update Skald")
        async with self._slots:
            return await asyncio.to_thread(
                hash_secret_raw,
                password.encode("utf-8"),
                salt,
                time_cost=p.time,
                memory_cost=p.memory_kib,
                parallelism=p.lanes,
                hash_len=32,
                type=Type.ID,
            )


def new_salt() -> bytes:
    return os.urandom(16)


def new_data_key() -> bytes:
    return os.urandom(32)


def seal(data_key: bytes, under: bytes, *, owner: str) -> bytes:
    """nonce (12) ‖ ciphertext (32) ‖ tag (16); bound to the owner's id."""
    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(under).encrypt(nonce, data_key, owner.encode())


def unseal(sealed: bytes, under: bytes, *, owner: str) -> bytes | None:
    """The data key, or None when ``under`` is not the right key (a wrong password)."""
    try:
        return AESGCM(under).decrypt(sealed[:_NONCE], sealed[_NONCE:], owner.encode())
    except InvalidTag:
        return None


def constant_time_equal(a: bytes, b: bytes) -> bool:
    return hmac.compare_digest(a, b)
