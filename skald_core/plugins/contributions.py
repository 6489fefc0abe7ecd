"""What a plugin may contribute, as plain declarations. The kernel collects them once per enable."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from skald_core.files.userfs import UserFs
from skald_core.identity.models import User
from skald_core.loop.gate import PendingCall
from skald_core.loop.provider import Provider
from skald_core.loop.tools import FileChange, Tool
from skald_core.loop.types import ModelInfo

__all__ = (
    "AgentSpec",
    "Allow",
    "Answer",
    "Capability",
    "ChatCompletions",
    "Choice",
    "CliCommand",
    "CliHost",
    "Command",
    "CommandCall",
    "Decision",
    "Deny",
    "FoundServer",
    "GateCall",
    "Health",
    "HealthCheck",
    "Migration",
    "FieldOption",
    "ProviderField",
    "ProviderPreset",
    "ProviderType",
    "RemoteModel",
    "Require",
    "Schema",
    "Service",
    "WebPage",
)

# --- pages -------------------------------------------------------------------------------------------------------


class WebPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page in the browser shell.

    ``entry`` is the URL path, below the plugin's own ``/api/plugin/<id>/``, of an ES module whose default export is a
    custom element class; files under the package's ``web/`` folder are served at ``web/…``. ``title`` is an i18n key or
    plain text, ``icon`` a Bootstrap icon name. Pages with a lower ``priority`` come first.
    """

    page_id: str
    title: str
    icon: str = "puzzle"
    entry: str
    admin_only: bool = False
    priority: int = 100


# --- rights ------------------------------------------------------------------------------------------------------


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """A right that roles may hold. ``id`` is ``<plugin id>.<name>``; ``title`` an i18n key or plain text."""

    id: str
    title: str
    default_roles: tuple[str, ...] = ()


# --- agents and commands -----------------------------------------------------------------------------------------


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An agent: its texts, its tools, its model.

    ``type`` is ``chat`` for one a person may talk with and ``task`` for one the assistant delegates to. ``short`` is the
    prompt for models with little context (empty: ``prompt``). ``tools`` names the tools it may use (None: all of the
    user's); ``model`` pins a model by id or title, else the server chooses. ``names`` are titles by locale.
    """

    id: str
    name: str
    description: str
    prompt: str
    type: Literal["chat", "task"] = "task"
    short: str = ""
    tools: tuple[str, ...] | None = None
    model: str | None = None
    names: dict[str, str] = {}


class CommandCall(msgspec.Struct, frozen=True):
    """``/name words``, as a user of a conversation wrote it."""

    user: User
    conversation: str
    words: str


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command. ``name`` has lower-case letters, digits and hyphens.

    ``prompt`` is a template in which ``{{args}}`` stands for the words after the name (else they are put at its end), or a
    function that makes the prompt; a ToolError it raises is told to the person and nothing is sent. ``title`` says what it
    does and ``hint`` what may follow the name, each an i18n key or plain text.
    """

    name: str
    title: str
    prompt: str | Callable[[CommandCall], Awaitable[str]]
    hint: str = ""


# --- the command line --------------------------------------------------------------------------------------------


class CliHost(Protocol):
    """What a plugin's command in the terminal may use."""

    data_dir: Path
    """The instance's data directory. Its databases belong to the running server: do not open them."""

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Call ``/api/plugin/<id>/<path>`` of the running server as the signed-in user and return the JSON answer.

        Signs in on first use (``--user``, ``$SKALD_USER`` and ``$SKALD_PASSWORD``, or asks). Raises ToolError with the
        problem's text, or saying that no server runs."""
        ...


class CliCommand(msgspec.Struct, frozen=True, kw_only=True):
    """``skald <plugin id> <name>``. ``arguments`` adds to its parser; ``run`` returns the exit status."""

    name: str
    help: str
    run: Callable[[argparse.Namespace, CliHost], int | Awaitable[int]]
    arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None


# --- health ------------------------------------------------------------------------------------------------------


class Health(msgspec.Struct, frozen=True):
    """What a check found. ``text`` says what is wrong and what to do, or what is well; an i18n key or plain text."""

    ok: bool
    text: str = ""


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check of something the plugin depends on, at most ten seconds long. ``title`` is an i18n key or plain text."""

    id: str
    title: str
    check: Callable[[], Awaitable[Health]]


# --- storage -----------------------------------------------------------------------------------------------------


class Migration(msgspec.Struct, frozen=True):
    """One step of a schema. ``version`` counts from 1; ``sql`` is a script run in a transaction, never edited once shipped."""

    version: int
    sql: str


class Schema(msgspec.Struct, frozen=True):
    """Tables of one bucket: ``registry`` lives in system.db, ``owner`` in every owner's database.

    Table names start with the plugin's id (hyphens as underscores) and an underscore. Owner tables have no foreign key to a
    registry table.
    """

    bucket: Literal["registry", "owner"]
    migrations: tuple[Migration, ...]


class Service(msgspec.Struct, frozen=True):
    """An implementation others look up by ``protocol`` (a Protocol class of ``skald_core.api``)."""

    protocol: type[Any]
    instance: Any


# --- models ------------------------------------------------------------------------------------------------------


class FieldOption(msgspec.Struct, frozen=True, kw_only=True):
    """What a ``select`` field may be: ``value`` is stored, ``label`` (an i18n key or plain text) is shown."""

    value: str
    label: str


class ProviderField(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a provider row. ``secret`` values are stored, never sent back to a browser, never logged.

    ``select`` is one of ``options``; ``create`` still judges the value, which may come from elsewhere than the form.
    """

    key: str
    label: str
    kind: Literal["text", "url", "secret", "path", "select"] = "text"
    required: bool = False
    default: str = ""
    help: str = ""
    options: tuple[FieldOption, ...] = ()


class ProviderPreset(msgspec.Struct, frozen=True, kw_only=True):
    """A known service of a provider type: fills ``settings`` and says whether a key is needed."""

    id: str
    title: str
    settings: dict[str, str]
    key: Literal["required", "optional", "none"] = "required"
    help_url: str = ""
    local: bool = False


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model a server says it has. ``id`` goes on the wire."""

    id: str
    title: str = ""
    info: ModelInfo = ModelInfo()


class FoundServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server already running on this machine, with what is needed to use it."""

    title: str
    settings: dict[str, str]
    models: tuple[RemoteModel, ...] = ()


class ProviderType(ABC):
    """A kind of model API a plugin can speak.

    ``id`` is stored with provider rows. ``setup_page`` names one of the plugin's own pages (``page_id``) that sets the
    provider up by itself, such as a model download; then ``fields`` may be empty.
    """

    id: str = ""
    title: str = ""
    summary: str = ""
    fields: tuple[ProviderField, ...] = ()
    presets: tuple[ProviderPreset, ...] = ()
    setup_page: str = ""

    @abstractmethod
    def create(self, settings: dict[str, str]) -> Provider:
        """A provider for one row. Opens no connection; raises ConfigError when a setting makes no sense."""

    async def list_models(self, settings: dict[str, str]) -> Sequence[RemoteModel]:
        """Ask the server for its models. Raises a ModelError whose text tells the admin what to do."""
        return ()

    async def discover(self) -> Sequence[FoundServer]:
        """Servers of this type already running on this machine; at most a second, never raises."""
        return ()


@runtime_checkable
class ChatCompletions(Protocol):
    """Service: makes a provider for any server that speaks OpenAI's chat completions."""

    def __call__(
        self,
        *,
        provider_id: str,
        base_url: str,
        api_key: str = "",
        infos: dict[str, ModelInfo] | None = None,
        max_retries: int = 2,
        timeout: float = 600.0,
    ) -> Provider: ...


# --- the gate ----------------------------------------------------------------------------------------------------


class GateCall(msgspec.Struct, frozen=True):
    """A call to judge for a user.

    ``raw`` is the JSON object of arguments (validated), ``interactive`` says whether a person is at the other end.
    ``preview()`` tells what the call would change.
    """

    user: User
    conversation: str
    agent: str
    tool: Tool
    raw: dict[str, Any]
    arguments: Any
    summary: str
    path: str | None
    files: UserFs | None
    interactive: bool
    pending: PendingCall

    async def preview(self) -> tuple[FileChange, ...]:
        """What the call would change. Raises ToolError when the call would fail anyway."""
        return await self.tool.preview(self.arguments, self.pending.context)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A button of an approval card. ``allow`` says which way it answers; ``label`` is an i18n key or plain text."""

    id: str
    label: str
    allow: bool
    note: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chose: the choice's id, and a note for the model when they wrote one.

    ``arguments`` are what the call shall run with instead of its own; the gate has judged them again by the time a plugin
    sees them.
    """

    choice: str
    allow: bool
    note: str = ""
    arguments: dict[str, Any] | None = None


class Allow(msgspec.Struct, frozen=True):
    """The plugin sees no reason to ask."""

    reason: str = ""


class Deny(msgspec.Struct, frozen=True):
    """Refuse; ``reason`` is told to the model and shown."""

    reason: str


class Require(msgspec.Struct, frozen=True, kw_only=True):
    """A person must decide.

    ``reason`` says why it is asked. ``details`` is JSON for the card: ``changes`` (list of ``{path, kind, diff, added,
    removed}``), ``command``, ``risk`` (``low|medium|high``) and so on. ``on_answer`` is awaited with the answer before the
    call runs, so that the plugin can remember "for this conversation"; an exception in it denies.
    """

    reason: str
    details: dict[str, Any] = {}
    choices: tuple[Choice, ...] = ()
    on_answer: Callable[[Answer], Awaitable[None]] | None = None


Decision = Allow | Deny | Require
