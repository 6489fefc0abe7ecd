"""Accounts, keys, sessions and the login limit, on real SQLCipher files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skald_core.db import schema
from skald_core.db.migrations import DatabaseNewer, SchemaPrefixError, apply_migrations
from skald_core.errors import BadInput, Conflict, NotFound, TooMany
from skald_core.identity import crypto, roles
from skald_core.identity.crypto import KdfParams, KeyDeriver
from skald_core.identity.ratelimit import LoginLimiter
from skald_core.identity.sessions import LoginSessions
from skald_core.identity.users import Users
from skald_core.identity.vault import Vault
from skald_core.loop.database import Database, WrongKey
from skald_core.plugins.contributions import Migration

PASSWORD = "correct horse battery"


class World:
    """A system database, a vault and the services over them."""

    def __init__(self, database: Database, folder: Path) -> None:
        async def migrate(owner: Database) -> None:
            await apply_migrations(owner, "kernel-owner", schema.OWNER)

        self.db = database
        self.vault = Vault(folder, migrate)
        self.users = Users(database, self.vault, KeyDeriver(KdfParams(memory_kib=1024, time=1)))
        self.sessions = LoginSessions(database, self.users)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = await Database.open(tmp_path / "system.db")
    await apply_migrations(database, "kernel", schema.REGISTRY)
    await database.write(roles.seed)
    made = World(database, tmp_path / "owners")
    yield made
    await made.vault.close()
    await database.close()


async def test_sealed_key_opens_only_with_the_password() -> None:
    """The AEAD tag is the password check, and the seal is bound to its owner."""
    key, under = crypto.new_data_key(), crypto.new_data_key()
    sealed = crypto.seal(key, under, owner="a")
    assert len(sealed) == 12 + 32 + 16
    assert crypto.unseal(sealed, under, owner="a") == key
    assert crypto.unseal(sealed, crypto.new_data_key(), owner="a") is None
    assert crypto.unseal(sealed, under, owner="b") is None


async def test_encrypted_user_signs_in_with_the_right_password_only(world: World, tmp_path: Path) -> None:
    """The file is unreadable without the key, and nothing in system.db checks a guess faster than Argon2id."""
    made = await world.users.create(username="Ada", password=PASSWORD, role="member")
    assert made.key is not None
    assert await world.users.verify("ada", "wrong password!") is None
    assert await world.users.verify("nobody", PASSWORD) is None
    proved = await world.users.verify("ADA", PASSWORD)
    assert proved is not None
    assert proved.key == made.key
    await world.vault.lock(made.user.id)
    assert not world.vault.path(made.user.id).read_bytes().startswith(b"SQLite format 3")
    with pytest.raises(WrongKey):
        await Database.open(world.vault.path(made.user.id), key=crypto.new_data_key())
    row = await world.db.read(lambda c: c.execute("SELECT password_hash FROM users").fetchone())
    assert row[0] is None


async def test_plain_user_has_a_readable_file_and_a_hash(world: World) -> None:
    """An unencrypted user's file needs no key; the password is still proved."""
    made = await world.users.create(username="bo", password=PASSWORD, role="member", encrypted=False)
    assert made.key is None
    assert await world.users.verify("bo", "another password") is None
    assert await world.users.verify("bo", PASSWORD) is not None


async def test_a_taken_name_leaves_nothing_behind(world: World) -> None:
    """A failed creation removes the database file it made."""
    await world.users.create(username="ada", password=PASSWORD, role="member")
    files = set(world.vault.path("x").parent.iterdir())
    with pytest.raises(Conflict) as caught:
        await world.users.create(username="ADA", password=PASSWORD, role="member")
    assert caught.value.code == "username_taken"
    assert set(world.vault.path("x").parent.iterdir()) == files


async def test_only_one_first_account(world: World) -> None:
    """The set-up race has one winner."""
    await world.users.create(username="ada", password=PASSWORD, role="admin", first=True)
    with pytest.raises(Conflict) as caught:
        await world.users.create(username="eve", password=PASSWORD, role="admin", first=True)
    assert caught.value.code == "already_set_up"


@pytest.mark.parametrize(
    ("password", "code"),
    [
        ("short", "weak_password"),
        ("1234567890", "common_password"),
        ("aaaaaaaaaaaa", "common_password"),
        ("adaada", "weak_password"),
    ],
)
async def test_weak_passwords_are_refused(world: World, password: str, code: str) -> None:
    """Too short, among the first guesses, or one letter."""
    with pytest.raises(BadInput) as caught:
        await world.users.create(username="ada", password=password, role="member")
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["", "-x", "a b", "ä", "x" * 33, "../up", "a/b"])
async def test_bad_user_names_are_refused(world: World, name: str) -> None:
    """Names are safe to show and to type anywhere."""
    with pytest.raises(BadInput):
        await world.users.create(username=name, password=PASSWORD, role="member")


async def test_password_change_keeps_the_data_and_ends_sessions(world: World) -> None:
    """The data key stays; the old password and every older session stop working at once."""
    made = await world.users.create(username="ada", password=PASSWORD, role="member")
    old = await world.sessions.issue(made.user, made.token_version)
    assert await world.sessions.check(old) is not None
    with pytest.raises(BadInput):
        await world.users.change_password(made.user.id, "not my password", "a new long password")
    version = await world.users.change_password(made.user.id, PASSWORD, "a new long password")
    assert await world.sessions.check(old) is None
    assert await world.users.verify("ada", PASSWORD) is None
    proved = await world.users.verify("ada", "a new long password")
    assert proved is not None
    assert proved.key == made.key
    assert proved.token_version == version


async def test_a_suspended_user_is_out_on_the_next_request(world: World) -> None:
    """A session that was just found good is not good a moment after the suspension."""
    made = await world.users.create(username="ada", password=PASSWORD, role="member")
    token = await world.sessions.issue(made.user, made.token_version)
    assert await world.sessions.check(token) is not None
    await world.users.change(made.user.id, active=False)
    assert await world.sessions.check(token) is None
    assert await world.users.verify("ada", PASSWORD) is None


async def test_tokens_are_stored_as_digests(world: World) -> None:
    """Reading system.db gives nobody a session."""
    made = await world.users.create(username="ada", password=PASSWORD, role="member")
    token = await world.sessions.issue(made.user, made.token_version)
    rows = await world.db.read(lambda c: c.execute("SELECT * FROM login_sessions").fetchall())
    assert token not in str(rows)
    await world.sessions.end(token)
    assert await world.sessions.check(token) is None


def test_login_limit_counts_failures_and_forgets() -> None:
    """Five failures of one account from one address, twenty of one address; a window later they are forgotten."""
    now = [0.0]
    limiter = LoginLimiter(clock=lambda: now[0])
    for _ in range(5):
        limiter.enter("ada", "1.1.1.1")
        limiter.failed("ada", "1.1.1.1")
        limiter.leave()
    with pytest.raises(TooMany) as caught:
        limiter.enter("ADA ", "1.1.1.1")
    assert caught.value.params["retry_after"] == 60
    limiter.enter("ada", "2.2.2.2")
    limiter.leave()
    now[0] = 61.0
    limiter.enter("ada", "1.1.1.1")
    limiter.leave()


def test_login_limit_bounds_waiting_derivations() -> None:
    """Nobody can queue up an unbounded number of 256 MiB derivations."""
    limiter = LoginLimiter(waiting=2)
    limiter.enter("a", "1")
    limiter.enter("b", "2")
    with pytest.raises(TooMany):
        limiter.enter("c", "3")
    limiter.leave()
    limiter.enter("c", "3")


async def test_unknown_user_is_not_found(world: World) -> None:
    """A fetch by an unknown id says so."""
    with pytest.raises(NotFound):
        await world.users.get("nope")


async def test_a_newer_database_is_refused_untouched(world: World) -> None:
    """A ledger ahead of the code stops the start and says what to do."""
    with pytest.raises(DatabaseNewer, match="newer version"):
        await apply_migrations(world.db, "kernel", schema.REGISTRY[:0])
    assert await world.db.read(lambda c: c.execute("SELECT count(*) FROM users").fetchone()[0]) == 0


async def test_a_migration_outside_its_prefix_is_rolled_back(world: World) -> None:
    """A plugin's tables carry its prefix, or nothing of the step remains."""
    steps = (Migration(1, "CREATE TABLE weather_days(a); CREATE TABLE users2(a);"),)
    with pytest.raises(SchemaPrefixError, match="users2"):
        await apply_migrations(world.db, "plugin:weather", steps, prefix="weather_")
    names = await world.db.read(lambda c: {r[0] for r in c.execute("SELECT name FROM sqlite_master")})
    assert "weather_days" not in names
    assert "users2" not in names


async def test_owner_schema_stands_alone(tmp_path: Path) -> None:
    """The owner tables work in an empty database with foreign keys on: none refers to a registry table."""
    database = await Database.open(tmp_path / "owner.db")
    await apply_migrations(database, "kernel-owner", schema.OWNER)
    tables = await database.read(
        lambda c: [
            r[0] for r in c.execute("SELECT name FROM sqlite_master WHERE type='table' AND name<>'schema_ledger'")
        ]
    )
    references = await database.read(
        lambda c: {r[2] for t in tables for r in c.execute(f"PRAGMA foreign_key_list({t})")}
    )
    await database.close()
    assert tables
    assert references <= set(tables)
