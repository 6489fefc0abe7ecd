"""What administrators do with accounts. Whatever ends somebody's access holds before the act returns; plugins hear of it
afterwards, to tidy up."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from skald_core.errors import Conflict, Forbidden, NotFound
from skald_core.identity.models import User
from skald_core.plugins.user_hooks import UserHooks

if TYPE_CHECKING:
    from skald_core.runtime.app import Skald

__all__ = ("Accounts",)

HOOK_SECONDS = 10.0


class Accounts:
    """Acts of ``actor``, who holds ``users.manage``. One at a time, so that two of them cannot cross."""

    def __init__(self, app: Skald) -> None:
        self._app = app
        self._one_at_a_time = asyncio.Lock()

    async def add(
        self, actor: User, *, username: str, password: str, display_name: str, role: str, encrypted: bool, locale: str
    ) -> User:
        """Create an account. Its data stays closed until the new user signs in.

        Raises Conflict ``role_not_found``, Forbidden for a role above the actor's own, and what ``Users.create`` raises.
        """
        app = self._app
        self._demand_role(actor, role)
        made = await app.users.create(
            username=username,
            password=password,
            display_name=display_name,
            role=role,
            encrypted=encrypted,
            locale=locale,
        )
        await app.vault.lock(made.user.id)
        await app.audit(actor, "user.create", made.user.username)
        await self.tell("skald_user_created", made.user)
        return made.user

    async def change(
        self,
        actor: User,
        user_id: str,
        *,
        display_name: str | None = None,
        role: str | None = None,
        active: bool | None = None,
    ) -> User:
        """Change what is given. Switched off, the account's sessions, sockets and turns have ended, and its data is closed,
        when this returns.

        Raises NotFound, Forbidden for an account or a role above the actor's own, Conflict ``yourself`` or ``last_admin``.
        """
        app = self._app
        async with self._one_at_a_time:
            before = await self._reach(actor, user_id)
            if role is not None and role != before.role:
                self._demand_role(actor, role)
            loses = (role is not None and role != before.role) or active is False
            if loses and actor.id == user_id:
                raise Conflict("You cannot take your own rights away; another administrator can.", code="yourself")
            user = await app.users.change(user_id, display_name=display_name, role=role, active=active)
            app.account_changed(user)
            if before.active and not user.active:
                await app.shut(user, "the account was switched off")
            elif user.active:
                app.readmit(user.id)
            changes = [
                f"{name}={getattr(user, name)}"
                for name in ("display_name", "role", "active")
                if getattr(user, name) != getattr(before, name)
            ]
            await app.audit(actor, "user.change", user.username, ", ".join(changes))
        if before.active and not user.active:
            await self.tell("skald_user_deactivated", user)
        return user

    async def delete(self, actor: User, user_id: str, password: str, *, address: str) -> None:
        """Delete an account, its database and its files. Cut short, it leaves an account that is switched off and can be
        deleted again.

        Raises what :meth:`change` raises, Forbidden ``bad_password`` when ``password`` is not the actor's, and TooMany.
        """
        app = self._app
        async with self._one_at_a_time:
            user = await self._reach(actor, user_id)
            if actor.id == user_id:
                raise Conflict("You cannot delete your own account; another administrator can.", code="yourself")
            if not await app.prove_again(actor, password, address=address):
                raise Forbidden("The password is not right.", code="bad_password")
            off = await app.users.change(user_id, active=False)
            await app.shut(off, "the account was deleted")
            await app.vault.delete_file(user_id)
            await asyncio.to_thread(_remove_folder, app.home_of(user_id))
            await app.users.remove(user_id)
            await app.audit(actor, "user.delete", user.username)
        async for _ in app.plugins.dispatcher.call("skald_user_deleted", {"user": off}, timeout=HOOK_SECONDS):
            pass  # all running plugins: one that was taken from the user earlier may still keep something of theirs

    async def demand(self, actor: User, user_id: str) -> User:
        """The account, if the actor may act on it. Raises NotFound and Forbidden."""
        return await self._reach(actor, user_id)

    async def tell(self, hook: str, user: User) -> None:
        app = self._app
        hooks = UserHooks(app.plugins.dispatcher, lambda: app.plugins.visible_to(user.id))
        await hooks.tell(hook, {"user": user}, timeout=HOOK_SECONDS)

    # -- nobody reaches above themselves ---------------------------------------------------------------------------

    async def _reach(self, actor: User, user_id: str) -> User:
        try:
            user = await self._app.users.get(user_id)
        except NotFound:
            raise NotFound("This account does not exist (any more).", code="user_not_found") from None
        if user.id != actor.id:
            self._demand_above(actor, user.role)
        return user

    def _demand_role(self, actor: User, role: str) -> None:
        if self._app.roles.get(role) is None:
            raise Conflict(f"there is no role {role!r}", code="role_not_found", role=role)
        self._demand_above(actor, role)

    def _demand_above(self, actor: User, role: str) -> None:
        """A role that holds what the actor's does not, the administrator's above all, is out of reach: else the right to
        manage accounts would be the right to everything."""
        roles = self._app.roles
        if not actor.is_admin and not roles.capabilities(role) <= roles.capabilities(actor.role):
            raise Forbidden(
                f"The role {role!r} has rights that yours lacks, so you cannot give it or act on who has it.",
                code="role_above",
                role=role,
            )


def _remove_folder(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
