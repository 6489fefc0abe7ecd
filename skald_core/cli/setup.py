"""The first account, made in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import locale as system_locale
import sys

from skald_core.errors import SkaldError
from skald_core.identity.passwords import MIN_LENGTH, check_password
from skald_core.runtime.i18n import LOCALES
from skald_core.runtime.settings import Settings, default_data_dir

__all__ = ("ask_first_account", "run")


def _guess_locale() -> str:
    language = (system_locale.getlocale()[0] or "en").partition("_")[0].lower()
    return language if language in LOCALES else "en"


def ask_first_account() -> dict[str, object] | None:
    """Questions in the terminal; None when the person skips them. The password is asked twice and never shown."""
    print("\nWelcome to Skald. Make the first account, an administrator's.")
    print("Leave the user name empty to do it in the browser instead.\n")
    try:
        while True:
            username = input("User name: ").strip().lower()
            if not username:
                return None
            display = input(f"Your name [{username}]: ").strip() or username
            print(
                f"\nA password of at least {MIN_LENGTH} characters. It also encrypts your data: nobody can recover it."
            )
            password = getpass.getpass("Password: ")
            try:
                check_password(password, username)
            except SkaldError as error:
                print(f"{error.detail}\n")
                continue
            if getpass.getpass("The same again: ") != password:
                print("They differ. Once more.\n")
                continue
            encrypted = input("Encrypt your data with this password? [Y/n] ").strip().lower() not in {"n", "no"}
            guess = _guess_locale()
            language = input(f"Language ({', '.join(LOCALES)}) [{guess}]: ").strip().lower() or guess
            return {
                "username": username,
                "display_name": display,
                "password": password,
                "encrypted": encrypted,
                "locale": language if language in LOCALES else guess,
            }
    except EOFError:
        print()
        return None


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    from skald_core.runtime.app import Skald

    settings = Settings(data_dir=args.data or default_data_dir(), only_plugins=frozenset())
    app = await Skald.start(settings)
    try:
        done = await app.users.count() > 0
        if args.check:
            print("set up" if done else "not set up")
            return 0 if done else 1
        if done:
            print("This instance has an account already. Sign in in the browser.")
            return 0
        if not sys.stdin.isatty():
            print(
                "skald: there is no terminal to ask in; start the server and open the link it prints", file=sys.stderr
            )
            return 2
        return 0 if await make_first(app) else 1
    finally:
        await app.stop()


async def make_first(app: object) -> bool:
    """Ask until it works or the person skips. ``app`` is the running Skald."""
    from skald_core.runtime.app import Skald

    assert isinstance(app, Skald)
    while True:
        answers = await asyncio.to_thread(ask_first_account)
        if answers is None:
            return False
        try:
            made = await app.create_first(
                username=str(answers["username"]),
                password=str(answers["password"]),
                display_name=str(answers["display_name"]),
                encrypted=bool(answers["encrypted"]),
                locale=str(answers["locale"]),
            )
        except SkaldError as error:
            print(f"{error.detail}\n")
            continue
        print(f"\nThe account {made.user.username!r} is ready.")
        return True
