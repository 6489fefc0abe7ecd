"""The permission engine for embedders: modes and rules. A server fills the same seam, :class:`~skald_core.loop.gate.Gate`.

A call is judged by the rules, first match wins, then by the mode. Everything fails closed: a call that cannot be judged, or
that nobody can be asked about, does not run.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from skald_core.loop.errors import ConfigError
from skald_core.loop.gate import Allow, Ask, Deny, PendingCall, Suspend, Verdict
from skald_core.loop.shell import CannotParse, Command, commands
from skald_core.loop.types import CallId, ConversationId, FrameId

__all__ = ("CanUseTool", "Mode", "PathRule", "PermissionEngine", "PermissionQuestion", "Rule", "ShellRule", "ToolRule")

log = logging.getLogger(__name__)

Mode = Literal["ask", "edits", "plan", "all"]
"""``ask``: reading runs, the rest is asked. ``edits``: changing a file below the root runs, too. ``plan``: reading runs, the
rest is refused. ``all``: everything runs that no rule denies."""

_ALIASES: dict[str, Mode] = {"default": "ask", "acceptEdits": "edits", "yolo": "all"}
_MOVES = frozenset({"cd", "chdir", "pushd", "popd"})
_MODES: tuple[Mode, ...] = ("ask", "edits", "plan", "all")

Decision = Literal["allow", "deny"]


class ToolRule(msgspec.Struct, frozen=True, tag="tool"):
    """About a tool by its name; ``*`` is every tool."""

    decision: Decision
    tool: str


class PathRule(msgspec.Struct, frozen=True, tag="path"):
    """About calls on a file: any of ``paths``, globs below the root (``*``, ``?``, ``[…]``, and ``**`` across folders).

    A leading ``!`` means every file the rest does not match. ``tools`` names the tools meant; empty means those that write.
    A file is judged by where it really is, links followed; a denial also by the name it was called by.
    """

    decision: Decision
    paths: tuple[str, ...]
    tools: tuple[str, ...] = ()


class ShellRule(msgspec.Struct, frozen=True, tag="shell"):
    """About shell commands: those that begin with the words of ``prefix``, or whose text ``regex`` finds.

    Every simple command of a line is judged on its own: one denied denies the line, and only when all are allowed is it. A
    denial also finds its command with a folder before its name and behind ``sudo``, ``env``, ``xargs`` and the like. What
    cannot be parsed is allowed by no rule, and refused when there is a rule that denies.
    """

    decision: Decision
    prefix: str = ""
    regex: str = ""


Rule = ToolRule | PathRule | ShellRule


class PermissionQuestion(msgspec.Struct, frozen=True):
    """A call somebody must decide about, and whose it is."""

    tool_name: str
    tool_use_id: str
    input: dict[str, Any]
    summary: str
    reason: str
    mode: Mode
    call_id: CallId
    conversation: ConversationId
    frame: FrameId
    agent: str


CanUseTool = Callable[[PermissionQuestion], Awaitable[Allow | Deny | Suspend]]
"""Decides about one call; ``Allow(raw)`` lets it run with other arguments, which are judged again."""

SHELL_TOOLS = {"Bash": "command", "execute_cmd": "command"}
"""Tools that run a shell line, and the argument that holds it."""


class PermissionEngine:
    """A gate of a mode and rules.

    Args:
        mode: What happens to calls no rule is about. Skawld's names (default, acceptEdits, yolo) are understood.
        rules: First match wins; the shell rules are judged together where the first of them stands. The list is copied.
        can_use_tool: Who is asked. Without it what would be asked is refused.
        root: The folder that relative paths and patterns start from; the current one when not given.
        shell_tools: Tools that run a shell line, with the name of the argument that holds it.

    Raises ConfigError for an unknown mode and for rules that could never match.
    """

    def __init__(
        self,
        *,
        mode: str = "ask",
        rules: Iterable[Rule] = (),
        can_use_tool: CanUseTool | None = None,
        root: str | Path | None = None,
        shell_tools: Mapping[str, str] = SHELL_TOOLS,
    ) -> None:
        known = _ALIASES.get(mode, mode)
        if known not in _MODES:
            raise ConfigError(f"there is no permission mode {mode!r}; choose one of {', '.join(_MODES)}")
        self.mode: Mode = known
        self._named = Path(os.path.abspath(root if root is not None else Path.cwd()))  # noqa: PTH100 -- links are followed later
        self.root = self._named.resolve()
        self._ask = can_use_tool
        self._shell_tools = dict(shell_tools)
        self._rules: list[_Matcher] = []
        self._shell: list[_ShellMatcher] = []
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> None:
        """Add a rule after the others, such as a decision somebody wants remembered."""
        if rule.decision not in ("allow", "deny"):
            raise ConfigError(f"a rule allows or denies; {rule.decision!r} is neither")
        if isinstance(rule, ShellRule):
            self._shell.append(_ShellMatcher(rule))
            if len(self._shell) == 1:
                self._rules.append(self._judge_shell)
        elif isinstance(rule, PathRule):
            self._rules.append(_PathMatcher(rule, self))
        else:
            self._rules.append(_tool_matcher(rule))

    # -- the gate ----------------------------------------------------------------------------------------------------

    async def judge(self, calls: Sequence[PendingCall]) -> Sequence[Verdict]:
        return [self.evaluate(call) for call in calls]

    async def ask(self, call: PendingCall, verdict: Ask) -> Allow | Deny | Suspend:
        if self._ask is None:
            return Deny(f"{call.tool.name} needs permission and there is nobody to ask ({verdict.reason})")
        context = call.context
        question = PermissionQuestion(
            call.tool.name, context.tool_use_id, call.raw, call.summary, verdict.reason, self.mode, context.call_id,
            context.conversation, context.frame, context.agent,
        )  # fmt: skip
        answer = await self._ask(question)
        if not isinstance(answer, Allow | Deny | Suspend):
            log.warning("can_use_tool answered with %r", type(answer).__name__)  # type: ignore[unreachable]
            return Deny("asking for permission gave no clear answer, so this call was refused")
        return answer

    def evaluate(self, call: PendingCall) -> Verdict:
        """What rules and mode say; asks nobody and touches nothing but the file system's links."""
        try:
            for rule in self._rules:
                verdict = rule(call)
                if verdict is not None:
                    return verdict
            return self._by_mode(call)
        except (OSError, ValueError, RuntimeError) as error:  # a path no file can have, or a circle of links
            return Deny(f"{call.tool.name}: the file it is about cannot be checked ({type(error).__name__})")

    def _by_mode(self, call: PendingCall) -> Verdict:
        tool = call.tool
        if self.mode == "all" or tool.scope == "read":
            return Allow()
        if self.mode == "plan":
            return Deny("only reading is allowed while planning; describe the change instead of making it")
        if self.mode == "edits" and tool.scope == "write":
            path = tool.target_path(call.arguments)
            if path is not None and self.real(path).is_relative_to(self.root):
                return Allow()
        what = {"write": "changes something", "exec": "runs something"}.get(tool.scope, "needs permission")
        return Ask(f"{tool.name} {what}")

    # -- files -------------------------------------------------------------------------------------------------------

    def real(self, path: str) -> Path:
        """Where a file is, links followed; also for one that does not exist yet."""
        return (self._named / os.path.expanduser(path)).resolve()  # noqa: PTH111 -- pathlib's raises for an unknown user

    def named(self, path: str) -> Path:
        """A file as it is called, without following links, seen from the root's real place where it is below the root."""
        plain = Path(os.path.abspath(self._named / os.path.expanduser(path)))  # noqa: PTH100, PTH111 -- links stay
        return self.root / plain.relative_to(self._named) if plain.is_relative_to(self._named) else plain

    def file_decision(self, path: str) -> Decision | None:
        """What the path rules about writing say of a file a redirection writes."""
        for rule in self._rules:
            if isinstance(rule, _PathMatcher) and not rule.rule.tools:
                decision = rule.decide(path)
                if decision is not None:
                    return decision
        return None

    # -- shell lines -------------------------------------------------------------------------------------------------

    def _judge_shell(self, call: PendingCall) -> Verdict | None:
        argument = self._shell_tools.get(call.tool.name)
        line = call.raw.get(argument) if argument is not None else None
        if not isinstance(line, str):
            return None
        try:
            found = commands(line)
        except CannotParse as error:
            if any(matcher.rule.decision == "deny" for matcher in self._shell):
                return Deny(f"the command cannot be checked against the rules: {error}; write it as simple commands")
            return None
        moves = any(command.name in _MOVES for command in found)
        decisions = [self._decide(command, moves) for command in found]
        for command, decision in zip(found, decisions, strict=True):
            if decision == "deny":
                return Deny(f"a rule forbids {command.raw!r}")
        return Allow() if decisions and all(decision == "allow" for decision in decisions) else None

    def _decide(self, command: Command, moves: bool) -> Decision | None:
        """What the rules say of one command; ``moves`` says that the line leaves the folder it begins in."""
        decision: Decision | None = None
        for matcher in self._shell:
            if matcher.matches(command):
                decision = matcher.rule.decision
                break
        if decision == "deny":
            return "deny"
        if not command.words and not command.assignments:
            decision = "allow"  # a group's redirection: only its files matter
        for path in command.writes:
            known = path is not None and not (moves and not Path(path).is_absolute())
            file = self.file_decision(path) if path is not None and known else None
            if file == "deny" or (not known and self._forbids_files()):
                return "deny"
            if file is None:
                decision = None
        return decision

    def _forbids_files(self) -> bool:
        rules = [rule.rule for rule in self._rules if isinstance(rule, _PathMatcher)]
        return any(rule.decision == "deny" and not rule.tools for rule in rules)


_Matcher = Callable[[PendingCall], Verdict | None]


def _tool_matcher(rule: ToolRule) -> _Matcher:
    def match(call: PendingCall) -> Verdict | None:
        if rule.tool not in ("*", call.tool.name):
            return None
        return Allow() if rule.decision == "allow" else Deny(f"a rule forbids {call.tool.name}")

    return match


class _PathMatcher:
    def __init__(self, rule: PathRule, engine: PermissionEngine) -> None:
        if not rule.paths or not all(path.lstrip("!") for path in rule.paths):
            raise ConfigError("a path rule needs at least one path, and none of them empty")
        self.rule = rule
        self._engine = engine
        self._patterns = [
            (path.startswith("!"), _glob(str(engine.root / path.removeprefix("!")))) for path in rule.paths
        ]

    def __call__(self, call: PendingCall) -> Verdict | None:
        tool = call.tool
        if tool.name not in self.rule.tools if self.rule.tools else tool.scope != "write":
            return None
        path = tool.target_path(call.arguments)
        decision = self.decide(path) if path is not None else None
        if decision is None:
            return None
        return Allow() if decision == "allow" else Deny(f"a rule forbids {tool.name} on {path!r}")

    def decide(self, path: str) -> Decision | None:
        real = self._hits(self._engine.real(path))
        if self.rule.decision == "deny":
            return "deny" if real or self._hits(self._engine.named(path)) else None
        return "allow" if real else None

    def _hits(self, path: Path) -> bool:
        return any((pattern.fullmatch(str(path)) is None) is inverted for inverted, pattern in self._patterns)


class _ShellMatcher:
    def __init__(self, rule: ShellRule) -> None:
        if bool(rule.prefix.strip()) == bool(rule.regex):
            raise ConfigError("a shell rule needs either a prefix or a regex")
        self.rule = rule
        self._regex: re.Pattern[str] | None = None
        self._words: tuple[str | None, ...] = ()
        try:
            if rule.regex:
                self._regex = re.compile(rule.regex)
            else:
                (command,) = commands(rule.prefix)
                self._words = command.words
        except (re.error, CannotParse, ValueError) as error:
            raise ConfigError(f"the shell rule {rule.prefix or rule.regex!r} cannot be understood: {error}") from None
        if not rule.regex and (None in self._words or not self._words):
            raise ConfigError(f"the shell rule {rule.prefix!r} must be plain words of one command")

    def matches(self, command: Command) -> bool:
        denies = self.rule.decision == "deny"
        if self._regex is not None:
            return self._regex.search(command.raw) is not None and (denies or not command.assignments)
        if denies:
            return any(self._begins(words) for words in (command.words, *command.hidden()))
        # Variables set for a command (PATH, LD_PRELOAD, …) can make it another one.
        return not command.assignments and self._begins(command.words)

    def _begins(self, words: tuple[str | None, ...]) -> bool:
        return words[: len(self._words)] == self._words


def _glob(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression on whole paths: ``*`` and ``?`` stay within a folder and see hidden files, too."""
    made: list[str] = []
    at = 0
    while at < len(pattern):
        here = pattern[at]
        if pattern.startswith("**/", at):
            made.append("(?:.*/)?")
            at += 3
            continue
        if pattern.startswith("**", at):
            made.append(".*")
            at += 2
            continue
        close = pattern.find("]", at + 2) if here == "[" else -1
        if here == "*":
            made.append("[^/]*")
        elif here == "?":
            made.append("[^/]")
        elif close > 0:
            inside = pattern[at + 1 : close].replace("\\", "\\\\")
            made.append(f"(?!/)[{'^' + inside[1:] if inside.startswith('!') else inside.replace('^', chr(92) + '^')}]")
            at = close
        else:
            made.append(re.escape(here))
        at += 1
    return re.compile("".join(made), re.DOTALL)
