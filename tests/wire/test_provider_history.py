"""A conversation with everything in it, through the real loop and its store: what each provider sends back, to the byte.

Two turns: the first thinks, speaks, calls a tool that brings a picture, thinks again and answers; the second has a document.
The store is closed and opened between them, so what is sent in the second comes from disk alone.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skald_anthropic.provider import AnthropicProvider
from skald_core.api import MediaPart, ModelInfo, Provider, ToolOutput, encode_body
from skald_core.loop import Agent, Attachment, PermissionEngine, SqliteStore, tool
from skald_core.testing.servers import RawServer, Script, Wire, providers, streams
from skald_ollama.provider import OllamaProvider
from skald_openai.provider import OpenAIProvider

Json = dict[str, Any]

PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-1.7"
PNG64, PDF64 = base64.b64encode(PNG).decode(), base64.b64encode(PDF).decode()
ARGUMENTS = '{ "path":"cat.png",  "n": 1.0 }'
INFO = ModelInfo(200_000, None, frozenset({"tools", "vision", "documents", "reasoning"}))


@tool(scope="read")
async def look(path: str, n: float) -> ToolOutput:
    """Look at a picture."""
    return ToolOutput("a cat", media=(Attachment(path, path, "image/png"),))


class Files:
    """Loads the two files of the conversation."""

    async def load(self, attachment: Attachment, scope: dict[type[Any], Any]) -> MediaPart | None:
        kind, data = {"cat.png": ("image/png", PNG), "plan.pdf": ("application/pdf", PDF)}[attachment.path]
        return MediaPart(kind, data, attachment.name)


async def converse(provider: Provider, model: str, path: Path) -> None:
    """The two turns."""
    for text, attachments in (
        ("What is on it?", ()),
        ("And this?", (Attachment("plan.pdf", "plan.pdf", "application/pdf"),)),
    ):
        store = await SqliteStore.open(path)
        agent = Agent(
            provider=provider,
            model=model,
            tools=[look],
            system="Be brief.",
            gate=PermissionEngine(),
            store=store,
            media=Files(),
        )
        try:
            session = agent.session("cat")
            await session.send(text, attachments=attachments)
            await session.wait()
        finally:
            await agent.close()
            await store.close()


def lines(*values: Json) -> Script:
    async def script(wire: Wire) -> None:
        await wire.lines(*values)

    return script


# --- what the servers say ------------------------------------------------------------------------------------------


def chat(*deltas: Json, finish: str = "stop") -> Script:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return streams(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}, done=True)


def thinks_in_chat() -> list[Script]:
    call = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": ARGUMENTS}}
    return [
        chat({"reasoning_content": "I must look."}, {"content": "Wait."}, {"tool_calls": [call]}, finish="tool_calls"),
        chat({"reasoning_content": "Clear."}, {"content": "A cat."}),
        chat({"content": "A plan."}),
    ]


THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA/+=="}
COMMENT = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Wait."}],
    "phase": "commentary",
    "role": "assistant",
}
CALLED = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": ARGUMENTS,
    "call_id": "call_1",
    "name": "look",
}
AGAIN = {**THOUGHT, "id": "rs_2", "encrypted_content": "gBBB/+=="}
FINAL = {
    "id": "msg_2",
    "type": "message",
    "status": "completed",
    "content": [{"type": "output_text", "annotations": [], "text": "A cat."}],
    "phase": "final_answer",
    "role": "assistant",
}


def response(*output: Json) -> Script:
    return streams({"type": "response.completed", "response": {"status": "completed", "output": list(output)}})


def block(index: int, kind: str, **deltas: str) -> list[Json]:
    start: Json = {"type": kind, **({"text": ""} if kind == "text" else {})}
    if kind == "thinking":
        start |= {"thinking": "", "signature": ""}
    if kind == "tool_use":
        start |= {"id": "toolu_1", "name": "look", "input": {}}
    fields = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
    out: list[Json] = [{"type": "content_block_start", "index": index, "content_block": start}]
    for name, text in deltas.items():
        delta = {"type": name, fields.get(name, "partial_json"): text}
        out.append({"type": "content_block_delta", "index": index, "delta": delta})
    return [*out, {"type": "content_block_stop", "index": index}]


def anthropic(*blocks: list[Json], stop: str = "end_turn") -> Script:
    return streams(
        {"type": "message_start", "message": {"model": "claude-sonnet-4-5", "usage": {}}},
        *(event for events in blocks for event in events),
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {}},
        {"type": "message_stop"},
    )


def thinks_in_blocks() -> list[Script]:
    return [
        anthropic(
            block(0, "thinking", thinking_delta="I must look.", signature_delta="Eq+/1=="),
            block(1, "text", text_delta="Wait."),
            block(2, "tool_use", input_json_delta=ARGUMENTS),
            stop="tool_use",
        ),
        anthropic(
            block(0, "thinking", thinking_delta="Clear.", signature_delta="Eq+/2=="),
            block(1, "text", text_delta="A cat."),
        ),
        anthropic(block(0, "text", text_delta="A plan.")),
    ]


def ollama(**message: Any) -> list[Json]:
    return [{"message": {"role": "assistant", "content": "", **message}, "done": False}]


def thinks_in_lines() -> list[Script]:
    # Raw, since this API carries arguments as JSON, whose text has to stay as it is.
    call = msgspec.Raw(f'[{{"id":"call_1","function":{{"name":"look","arguments":{ARGUMENTS}}}}}]'.encode())
    done = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}

    async def first(wire: Wire) -> None:
        await wire.head(Content_Type="application/x-ndjson")
        for value in (*ollama(thinking="I must look."), *ollama(content="Wait."), *ollama(tool_calls=call), done):
            await wire.send(msgspec.json.encode(value) + b"\n")

    return [
        first,
        lines(*ollama(thinking="Clear."), *ollama(content="A cat."), done),
        lines(*ollama(content="A plan."), done),
    ]


# --- what goes back ------------------------------------------------------------------------------------------------

RAW = msgspec.Raw(ARGUMENTS.encode())
FILES = "Files from the results above:"
ASKED = 'And this?\n\n<attachments count="1">\n- plan.pdf (application/pdf)\n</attachments>'
MARK = {"cache_control": {"type": "ephemeral"}}

CHAT: tuple[list[Json], list[Json]] = (
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is on it?"},
        {
            "role": "assistant",
            "content": "Wait.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}],
            "reasoning_content": "I must look.",
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": FILES},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG64}"}},
            ],
        },
    ],
    [
        {"role": "assistant", "content": "A cat."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": ASKED},
                {
                    "type": "file",
                    "file": {"filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{PDF64}"},
                },
            ],
        },
    ],
)
RESPONSES: tuple[list[Json], list[Json]] = (
    [
        {"role": "user", "content": "What is on it?"},
        THOUGHT,
        COMMENT,
        CALLED,
        {"type": "function_call_output", "call_id": "call_1", "output": "a cat"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": FILES},
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG64}"},
            ],
        },
    ],
    [
        AGAIN,
        FINAL,
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": ASKED},
                {"type": "input_file", "filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{PDF64}"},
            ],
        },
    ],
)
ANTHROPIC: tuple[list[Json], list[Json]] = (
    [
        {"role": "user", "content": [{"type": "text", "text": "What is on it?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I must look.", "signature": "Eq+/1=="},
                {"type": "text", "text": "Wait."},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": RAW},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a cat"},
                {"type": "text", "text": FILES},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG64}, **MARK},
            ],
        },
    ],
    [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Clear.", "signature": "Eq+/2=="},
                {"type": "text", "text": "A cat."},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": ASKED},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF64},
                    "title": "plan.pdf",
                    **MARK,
                },
            ],
        },
    ],
)
OLLAMA: tuple[list[Json], list[Json]] = (
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is on it?"},
        {
            "role": "assistant",
            "content": "Wait.",
            "thinking": "I must look.",
            "tool_calls": [{"id": "call_1", "function": {"name": "look", "arguments": RAW}}],
        },
        {"role": "tool", "tool_name": "look", "tool_call_id": "call_1", "content": "a cat"},
        {"role": "user", "content": FILES, "images": [PNG64]},
    ],
    [
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": ASKED},  # it sees pictures only; the note names the file
    ],
)


def a_turn_later(messages: list[Json]) -> list[Json]:
    """The first turn as the second one shows it: without its picture, and the cache mark that has moved on."""
    *before, last = messages
    if last["role"] == "user" and last["content"][0] == ANTHROPIC[0][-1]["content"][0]:
        return [*before, {**last, "content": last["content"][:1]}]
    return before


@pytest.mark.parametrize(
    ("kind", "path", "model", "said", "field", "sent"),
    [
        (OpenAIProvider, "/v1", "kimi-k2.6", thinks_in_chat, "messages", CHAT),
        (
            lambda **options: OpenAIProvider(api="responses", **options),
            "/v1",
            "gpt-5.5",
            lambda: [
                response(THOUGHT, COMMENT, CALLED),
                response(AGAIN, FINAL),
                response({**FINAL, "content": [{"type": "output_text", "text": "A plan."}]}),
            ],
            "input",
            RESPONSES,
        ),
        (AnthropicProvider, "", "claude-sonnet-4-5", thinks_in_blocks, "messages", ANTHROPIC),
        (OllamaProvider, "", "qwen3:8b", thinks_in_lines, "messages", OLLAMA),
    ],
    ids=["chat", "responses", "anthropic", "ollama"],
)
async def test_everything_goes_back_as_it_came(
    tmp_path: Path,
    kind: Callable[..., Provider],
    path: str,
    model: str,
    said: Callable[[], list[Script]],
    field: str,
    sent: tuple[list[Json], list[Json]],
) -> None:
    """Thoughts with their signatures or encrypted, text and calls in their places, arguments as the model wrote them, media in
    their own turn: in the round after and, from disk, in the turn after."""
    info = ModelInfo(INFO.context_window, None, INFO.capabilities - ({"documents"} if model == "qwen3:8b" else set()))
    async with RawServer(path) as server, providers(kind) as make:
        server.answer(*said())
        await converse(make(server.url, infos={model: info}), model, tmp_path / "chats.db")
        heard = server.heard
    assert len(heard) == 3
    assert encode_body({field: sent[0]})[1:-1] in heard[1].raw
    assert encode_body({field: [*a_turn_later(sent[0]), *sent[1]]})[1:-1] in heard[2].raw
