"""What a password must be: long enough and not among the first guesses (NIST SP 800-63B §3.1.1.2: length and a blocklist,
no composition rules)."""

from __future__ import annotations

from skald_core.errors import BadInput

__all__ = ("MIN_LENGTH", "check_password")

MIN_LENGTH = 10
_MAX_BYTES = 1024

_COMMON = frozenset(
    """
    1234567890 0123456789 0987654321 1111111111 0000000000 1234512345 12345678910 123456789a qwertyuiop qwertzuiop azertyuiop
    1q2w3e4r5t 1qaz2wsx3edc qwerty12345 qwerty123456 password12 password123 password1234 passw0rd123 password123456
    adminadmin administrator letmein123 letmeinnow iloveyou12 iloveyou123 welcome123 welcome1234 abcdefghij abcdefghijk
    abcd123456 a123456789 aa12345678 changeme123 changemenow trustno1trustno1 sunshine123 football123 baseball123 dragon12345
    monkey12345 superman123 princess123 qwerty1234 asdfghjkl1 asdfghjkl123 zxcvbnm123 skaldskald skald12345 skaldpassword
    """.split()  # noqa: SIM905 -- a word list reads best as words
)


def check_password(password: str, username: str = "") -> None:
    """Raises BadInput ``weak_password`` with the reason."""
    if len(password) < MIN_LENGTH:
        raise BadInput(
            f"The password needs at least {MIN_LENGTH} characters.", code="weak_password", minimum=MIN_LENGTH
        )
    if len(password.encode()) > _MAX_BYTES:
        raise BadInput("The password is longer than 1,024 bytes; use a shorter one.", code="password_too_long")
    folded = password.casefold()
    name = username.casefold()
    if folded in _COMMON or len(set(folded)) <= 2 or (name and folded in {name, name * 2, name + "123", name + "1234"}):
        raise BadInput("This password is among the first anyone would guess; choose another.", code="common_password")
