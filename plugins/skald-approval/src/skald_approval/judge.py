"""Judging one call: rules first, then what the person allowed for this conversation, then a question with the effect.

Whatever goes wrong on the way to "allow" ends in asking; whatever goes wrong on the way from the answer to the run ends in
not running.
"""

from __future__ import annotations

import asyncio

import msgspec

from skald_approval.card import details, effect_digest
from skald_approval.rules import Facts, Rule, decide
from skald_approval.store import Bypasses, Rules, Shown, call_key
from skald_core import api as skald

__all__ = ("CHOICES", "UNATTENDED_CHOICES", "facts_of", "judge")

_ONCE = skald.Choice(id="allow_once", label="plugin.approval.choice.allow_once", allow=True)
_CONVERSATION = skald.Choice(id="allow_conversation", label="plugin.approval.choice.allow_conversation", allow=True)
_DENY = skald.Choice(id="deny", label="plugin.approval.choice.deny", allow=False, note=True)

CHOICES = (_ONCE, _CONVERSATION, _DENY)

# Nobody sits in front of an unattended run, and a bypass does not apply to one: so none is offered.
UNATTENDED_CHOICES = (_ONCE, _DENY)


def facts_of(call: skald.GateCall) -> Facts:
    """What rules look at, before anything is read from a disk. Raises FilesError for a path that is none."""
    path = call.files.display(call.path) if call.files is not None and call.path is not None else None
    return Facts(
        tool=call.tool.name,
        scope=call.tool.scope,
        agent=call.agent,
        path=path,
        in_home=path is not None and call.files is not None and call.files.in_home(path),
    )


async def judge(ctx: skald.PluginContext, call: skald.GateCall) -> skald.Decision:
    """Allow, deny, or have a person decide. Never raises for a call that is merely wrong."""
    try:
        facts = facts_of(call)
    except skald.FilesError as error:
        return skald.Deny(str(error))  # no path, so the call would fail with the same words
    try:
        rules = await Rules(ctx).load()
    except Exception:
        # Whatever keeps rules from being read, asking is the safe answer.
        ctx.log.exception("the approval rules cannot be read; the person is asked")
        return await _require(ctx, call, facts, ctx.t("reason.no_rules", call.user.locale))
    facts = await _with_folder(call, facts, rules)
    rule = decide(rules, facts)
    if rule is not None and rule.action == "deny":
        return skald.Deny(_denial(facts, rule))
    if rule is not None and rule.action == "allow":
        return skald.Allow(rule.note or f"rule {rule.id}")
    if call.interactive and await _bypassed(ctx, call, facts):
        return skald.Allow("allowed for this conversation")
    reason = (rule.note if rule is not None else "") or ctx.t(f"reason.{facts.scope}", call.user.locale)
    return await _require(ctx, call, facts, reason)


async def _with_folder(call: skald.GateCall, facts: Facts, rules: list[Rule]) -> Facts:
    """Look whether the path is a folder, where a rule could care."""
    if facts.path is None or call.files is None:
        return facts
    if facts.path == "~":
        return msgspec.structs.replace(facts, folder=True)
    if not any(rule.path is not None and rule.action != "allow" for rule in rules):
        return facts
    try:
        found = await call.files.find(facts.path)
    except skald.FilesError:  # through a file or a link: no folder that could be read
        return facts
    return msgspec.structs.replace(facts, folder=found is not None and found.kind == "dir")


def _denial(facts: Facts, rule: Rule) -> str:
    target = f" on {facts.path!r}" if facts.path is not None else ""
    note = f" {rule.note}" if rule.note else ""
    narrower = " Part of that folder is closed; name a folder or file beside it." if facts.folder and rule.path else ""
    return (
        f"A rule of this instance does not allow {facts.tool}{target}.{note}{narrower} "
        "Do not try to reach the same goal another way."
    )


async def _bypassed(ctx: skald.PluginContext, call: skald.GateCall, facts: Facts) -> bool:
    try:
        return await Bypasses(ctx, call.user).covers(call.conversation, facts)
    except Exception:
        ctx.log.exception("bypasses cannot be read; the person is asked")
        return False


async def _require(ctx: skald.PluginContext, call: skald.GateCall, facts: Facts, reason: str) -> skald.Decision:
    """The question, with what the call would change.

    A call that would fail anyway is refused with the tool's own words: running it could still succeed by then, without
    anybody's consent, and a person should not be asked about what cannot work.
    """
    try:
        changes = await call.preview()
    except skald.ToolError as error:
        return skald.Deny(str(error))
    except Exception:
        ctx.log.exception("the preview of %s failed", facts.tool)
        changes = ()
    card = await asyncio.to_thread(details, facts.scope, call.raw, changes)
    digest = await asyncio.to_thread(effect_digest, changes)
    key = call_key(call)
    try:
        digest = await Shown(ctx, call.user).first(call.conversation, key, digest)
    except Exception:
        ctx.log.exception("the effect of %s could not be noted", facts.tool)

    async def on_answer(answer: skald.Answer) -> None:
        await _answered(ctx, call, facts, digest, answer)

    return skald.Require(
        reason=reason,
        details=card,
        choices=CHOICES if call.interactive else UNATTENDED_CHOICES,
        on_answer=on_answer,
    )


async def _answered(
    ctx: skald.PluginContext, call: skald.GateCall, facts: Facts, digest: str, answer: skald.Answer
) -> None:
    """Check that the call still does what was shown; remember what was allowed. Raises ToolError when it does not."""
    await _forget(ctx, call)
    if not answer.allow:
        return
    changes = await call.preview()
    if await asyncio.to_thread(effect_digest, changes) != digest:
        target = repr(facts.path) if facts.path is not None else "What it would change"
        raise skald.ToolError(
            f"{target} was changed after this call was shown for approval, so it was not run. "
            "Read it again, then repeat the call."
        )
    if answer.choice == _CONVERSATION.id:
        try:
            await Bypasses(ctx, call.user).add(
                conversation=call.conversation, agent=facts.agent, tool=facts.tool, path=_area(call, facts)
            )
        except Exception:
            ctx.log.exception("a bypass could not be stored")


async def _forget(ctx: skald.PluginContext, call: skald.GateCall) -> None:
    try:
        await Shown(ctx, call.user).forget(call.conversation, call_key(call))
    except Exception:
        ctx.log.exception("an answered request could not be cleared away")


def _area(call: skald.GateCall, facts: Facts) -> str:
    """Where a bypass holds: in the home, or in the one mounted folder the call was about."""
    if facts.path is None or call.files is None:
        return ""
    prefix = call.files.mount_of(facts.path)
    if prefix is None:
        return facts.path
    return f"{prefix}/*" if prefix else "~/*"
