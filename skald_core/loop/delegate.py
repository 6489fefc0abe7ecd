"""Sub-agents: a tool that has another agent do a piece of work in a child frame and returns its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from skald_core.loop.errors import ConfigError, ToolError, ToolSuspended
from skald_core.loop.services import Outcome
from skald_core.loop.tools import InvalidArguments, Tool, ToolContext, ToolOutput

__all__ = ("AsyncExecutor", "AsyncTask", "DelegateTool", "Delegation")


class Delegation:
    """What the loop puts into every tool context so that a tool may run a sub-agent.

    ``run(ctx, agent, prompt, title, model)`` opens a child frame for ``ctx.call_id`` and works until it ends; ``model``
    pins one, else the agent's own profile decides. Called again for the same call after a crash it takes the same frame
    up, with the model it had. Raises ConfigError for an unknown agent, a call to itself or too deep a nesting.
    """

    __slots__ = ("run",)

    def __init__(self, run: Callable[[ToolContext, str, str, str, str | None], Awaitable[Outcome]]) -> None:
        self.run = run


class AsyncTask(msgspec.Struct, frozen=True):
    agent: str
    title: str
    prompt: str
    description: str = ""
    model: str | None = None


class AsyncExecutor(Protocol):
    """Takes work that goes on after the turn. The result comes back through ``Session.deliver_result``."""

    async def submit(self, ctx: ToolContext, task: AsyncTask) -> str:
        """Store the task durably and return its id at once."""
        ...


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent_id: str
    prompt: str
    title: str = ""
    description: str = ""
    mode: Literal["sync", "async"] = "sync"
    model: str | None = None


class DelegateTool(Tool):
    """``agents`` maps the ids a model may choose to one line about each. Without an ``executor`` only sync work is taken.

    ``models`` are names the model may pick from for the sub-agent, as the selector knows them; without any it cannot. The
    parent's model is never taken over.
    """

    scope = "exec"
    restart_hint = "rerun"  # a second run takes up the child frame of the first
    parallel_safe = True
    icon = "subagent"

    def __init__(
        self,
        agents: dict[str, str],
        *,
        name: str = "execute_subtask",
        title: str = "",
        executor: AsyncExecutor | None = None,
        models: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.title = title
        self._agents = agents
        self._executor = executor
        self._models = tuple(models)
        lines = "\n".join(f"- {key}: {about}" for key, about in sorted(agents.items()))
        self.description = (
            "Give a self-contained piece of work to another agent and get its answer. It sees nothing of this "
            f"conversation, so put everything it needs into the prompt. Agents:\n{lines}"
        )
        properties: dict[str, Any] = {
            "agent_id": {"type": "string", "enum": sorted(agents)},
            "title": {"type": "string", "description": "A few words for people."},
            "prompt": {"type": "string", "description": "The whole task."},
            "description": {"type": "string"},
        }
        if executor is not None:
            properties["mode"] = {
                "type": "string",
                "enum": ["sync", "async"],
                "description": "async returns at once; the result arrives later as a message.",
            }
        if self._models:
            properties["model"] = {
                "type": "string", "enum": list(self._models), "description": "Leave out to have one chosen.",
            }  # fmt: skip
        self.parameters = {"type": "object", "properties": properties, "required": ["agent_id", "prompt"]}

    def validate(self, arguments: dict[str, Any]) -> _Arguments:
        try:
            made = msgspec.convert(arguments, _Arguments)
        except msgspec.ValidationError as error:
            raise InvalidArguments(f"{self.name}: {error}") from None
        if made.agent_id not in self._agents:
            raise InvalidArguments(f"{self.name}: no agent {made.agent_id!r}; choose one of {sorted(self._agents)}")
        if not made.prompt.strip():
            raise InvalidArguments(f"{self.name}: 'prompt' must not be empty")
        if made.mode == "async" and self._executor is None:
            raise InvalidArguments(f"{self.name}: nothing here can run tasks in the background; use mode 'sync'")
        if made.model is not None and made.model not in self._models:
            known = f"choose one of {list(self._models)} or leave it out" if self._models else "leave it out"
            raise InvalidArguments(f"{self.name}: no model {made.model!r} to choose; {known}")
        return made

    def summarize(self, arguments: _Arguments) -> str:
        return f"{arguments.agent_id}: {arguments.title or arguments.prompt}"[:100]

    async def run(self, arguments: _Arguments, ctx: ToolContext) -> ToolOutput:
        if arguments.mode == "async" and self._executor is not None:
            task = AsyncTask(
                arguments.agent_id, arguments.title, arguments.prompt, arguments.description, arguments.model
            )
            task_id = await self._executor.submit(ctx, task)
            receipt = msgspec.json.encode({"task_id": task_id, "status": "started"}).decode()
            return ToolOutput(receipt, json=True)
        try:
            outcome = await ctx.get(Delegation).run(
                ctx, arguments.agent_id, arguments.prompt, arguments.title, arguments.model
            )
        except ConfigError as error:
            raise ToolError(str(error)) from None
        return _answer(outcome)


def _answer(outcome: Outcome) -> ToolOutput:
    partial = f"\n\nWhat it had so far:\n{outcome.text}" if outcome.text else ""
    match outcome.kind:
        case "success" if outcome.text.strip():
            return ToolOutput(outcome.text)
        case "success":
            return ToolOutput("the agent finished without an answer; ask again with a clearer task", is_error=True)
        case "error":
            return ToolOutput(f"the agent failed: {outcome.reason}{partial}", is_error=True)
        case "suspended":
            raise ToolSuspended("the agent waits for a person")
        case _:
            return ToolOutput(f"the agent was stopped before it finished{partial}", is_error=True)
