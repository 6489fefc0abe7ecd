"""The rules page's routes, below ``/api/plugin/approval/``. Rules are the administrator's; bypasses are one's own."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from litestar import Request, delete, get, post, put
from litestar.exceptions import HTTPException
from litestar.params import FromPath, JSONBody

from skald_approval.rules import HOME, Action, Facts, Rule, clean_path_pattern, decide
from skald_approval.store import Bypass, Bypasses, Rules
from skald_core import api as skald

__all__ = ("RuleBody", "TryBody", "check_rule", "handlers")

AnyRequest = Request[Any, Any, Any]
MANAGE = {"capability": "approval.manage"}

_TOOL = re.compile(r"@fs_(?:read|write|any)|[A-Za-z0-9_-]{1,128}\*?|\*")
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\\]")


class RuleBody(msgspec.Struct, forbid_unknown_fields=True):
    """A rule as the page sends it. ``priority`` lower comes first; an empty agent or path means any."""

    tool: str
    action: Action
    priority: int = 500
    agent: str | None = None
    path: str | None = None
    note: str = ""


class TryBody(msgspec.Struct, forbid_unknown_fields=True):
    """ "Would this run?" ``scope`` is what the tool declares."""

    tool: str
    scope: Literal["read", "write", "exec"] = "exec"
    path: str | None = None
    agent: str = ""


class TryAnswer(msgspec.Struct):
    """``rule`` None: nothing matched, so a person is asked."""

    action: Action
    rule: Rule | None = None


def refuse(detail: str, status: int = 422) -> HTTPException:
    return HTTPException(status_code=status, detail=detail)


def check_rule(body: RuleBody, rule_id: str, others: list[Rule], text: Any) -> Rule:
    """``body`` as a rule. Raises HTTPException with a sentence from ``text(key)`` for what makes no sense."""
    tool = body.tool.strip()
    if not _TOOL.fullmatch(tool):
        raise refuse(text("error.tool"))
    path = (body.path or "").strip() or None
    if path is not None:
        outside = path.startswith("/") and path != "/root" and not path.startswith("/root/")
        path = clean_path_pattern(path)
        wrong = "*" in path.removesuffix("*") or ".." in path.split("/") or _HIDDEN.search(path)
        if outside or wrong or not 0 < len(path) <= 1024:
            raise refuse(text("error.path"))
    if not 0 <= body.priority <= 1_000_000_000:
        raise refuse(text("error.priority"))
    if len(body.note) > 500:
        raise refuse(text("error.note"))
    rule = Rule(
        id=rule_id,
        priority=body.priority,
        agent=(body.agent or "").strip()[:128] or None,
        tool=tool,
        path=path,
        action=body.action,
        note=body.note.strip(),
    )
    if any((r.agent, r.tool, r.path) == (rule.agent, rule.tool, rule.path) for r in others if r.id != rule_id):
        raise refuse(text("error.same"), 409)
    return rule


def _caller(request: AnyRequest) -> skald.User:
    user = request.scope.get("skald_user")
    if not isinstance(user, skald.User):
        raise refuse("Please sign in.", 401)
    return user


def handlers(ctx: skald.PluginContext) -> list[Any]:
    """The handlers, tied to this plugin's context."""

    def texts(request: AnyRequest) -> Any:
        locale = _caller(request).locale
        return lambda key: ctx.t(key, locale)

    async def known(request: AnyRequest, rule_id: str) -> list[Rule]:
        rules = await Rules(ctx).load()
        if all(rule.id != rule_id for rule in rules):
            raise refuse(texts(request)("error.gone"), 404)
        return rules

    async def saved(request: AnyRequest, rule: Rule) -> Rule:
        await Rules(ctx).save(rule)
        ctx.log.info("rule %s was saved by %s: %s %s", rule.id, _caller(request).username, rule.action, rule.tool)
        ctx.publish("rules_changed", {})
        return rule

    @get("/rules", opt=MANAGE)
    async def list_rules() -> list[Rule]:
        """Every rule, in the order they are tried."""
        return await Rules(ctx).load()

    @post("/rules", opt=MANAGE)
    async def add_rule(request: AnyRequest, data: JSONBody[RuleBody]) -> Rule:
        rules = await Rules(ctx).load()
        return await saved(request, check_rule(data, ctx.new_id(), rules, texts(request)))

    @put("/rules/{rule_id:str}", opt=MANAGE)
    async def change_rule(request: AnyRequest, rule_id: FromPath[str], data: JSONBody[RuleBody]) -> Rule:
        rules = await known(request, rule_id)
        return await saved(request, check_rule(data, rule_id, rules, texts(request)))

    @delete("/rules/{rule_id:str}", opt=MANAGE)
    async def delete_rule(request: AnyRequest, rule_id: FromPath[str]) -> None:
        await known(request, rule_id)
        await Rules(ctx).delete(rule_id)
        ctx.log.info("rule %s was deleted by %s", rule_id, _caller(request).username)
        ctx.publish("rules_changed", {})

    @post("/rules/try", opt=MANAGE, status_code=200)
    async def try_rules(request: AnyRequest, data: JSONBody[TryBody]) -> TryAnswer:
        """What would happen to a call, by the rules alone."""
        files = ctx.files(_caller(request))
        path = files.display(data.path) if data.path else None
        folder = False
        if path is not None:
            found = None if path == HOME else await files.find(path)
            folder = path == HOME or (found is not None and found.kind == "dir")
        facts = Facts(
            tool=data.tool.strip(),
            scope=data.scope,
            agent=data.agent.strip(),
            path=path,
            in_home=path is not None and files.in_home(path),
            folder=folder,
        )
        rule = decide(await Rules(ctx).load(), facts)
        return TryAnswer("require" if rule is None else rule.action, rule)

    @get("/bypasses")
    async def list_bypasses(request: AnyRequest) -> tuple[Bypass, ...]:
        """What the caller allowed for their conversations."""
        return await Bypasses(ctx, _caller(request)).list()

    @delete("/bypasses/{bypass_id:str}")
    async def delete_bypass(request: AnyRequest, bypass_id: FromPath[str]) -> None:
        if not await Bypasses(ctx, _caller(request)).delete(bypass_id):
            raise refuse(texts(request)("error.gone"), 404)

    return [list_rules, add_rule, change_rule, delete_rule, try_rules, list_bypasses, delete_bypass]
