"""Reading what a server says of an error, in the shapes servers use."""

from __future__ import annotations

from typing import Any

import msgspec

from skald_core.api import ServerReply, clean_detail, read_json

__all__ = ("read_error",)

_STATUS_WORDS = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "resource_exhausted": 429,
    "not_found_error": 404,
    "model_not_found": 404,
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "exceed_context_size_error": 400,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "data_residency_mismatch": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "invalid_image": 400,
    "invalid_image_format": 400,
    "invalid_base64_image": 400,
    "invalid_image_url": 400,
    "image_too_large": 400,
    "image_too_small": 400,
    "image_parse_error": 400,
    "image_content_policy_violation": 400,
    "invalid_image_mode": 400,
    "image_file_too_large": 400,
    "unsupported_image_media_type": 400,
    "empty_image_file": 400,
    "failed_to_download_image": 400,
    "image_file_not_found": 400,
    "overloaded_error": 529,
    "server_error": 500,
    "internal_server_error": 500,
    "service_unavailable": 503,
    "unavailable_error": 503,
}


def read_error(body: Any, secret: str = "") -> ServerReply | None:
    """The error in a decoded body, or None when there is none in it.

    Understands OpenAI's ``{"error": {…}}``, a bare string there, a list around it (Gemini), the flat form (Mistral, old
    vLLM), FastAPI's ``detail``, Cloudflare's ``errors``, the upstream error OpenRouter nests in ``metadata.raw``, and the
    ``response.failed`` event of the Responses API.
    """
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        return _structured(error, secret)
    if isinstance(error, str) and error:
        return _plain(str(body.get("message") or error), secret)
    errors = body.get("errors")
    if isinstance(errors, list) and errors and not body.get("choices"):
        first = errors[0]
        return _structured(first, secret) if isinstance(first, dict) else _plain(str(first), secret)
    if "choices" in body:
        choices = body["choices"]
        # OpenRouter and others put the error of an upstream that broke into the choice.
        broken = (c for c in choices if isinstance(c, dict) and c.get("error")) if isinstance(choices, list) else ()
        return next((read_error(choice, secret) for choice in broken), None)
    response = body.get("response")
    if isinstance(response, dict):  # an event of the Responses API
        return read_error(response, secret) if response.get("status") == "failed" else None
    detail = body.get("detail")
    if isinstance(detail, str) and detail:
        return _plain(detail, secret)
    if isinstance(detail, dict):
        return _structured(detail, secret)
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        where = detail[0].get("loc")
        place = ".".join(map(str, where)) if isinstance(where, list) else ""
        parts = [p for p in (place, str(detail[0].get("msg") or "")) if p]
        return ServerReply(
            clean_detail(": ".join(parts), secret), kind="invalid_request_error", param=place.rpartition(".")[2]
        )
    if isinstance(body.get("message"), (str, dict)) or body.get("object") == "error":
        return _structured(body, secret)
    if isinstance(body.get("msg"), str):
        return _plain(str(body["msg"]), secret)
    return None


def _plain(text: str, secret: str) -> ServerReply:
    # LM Studio says so with HTTP 200.
    status = 404 if text.startswith("Unexpected endpoint or method") else 0
    return ServerReply(clean_detail(text, secret), status=status)


def _structured(error: dict[str, Any], secret: str) -> ServerReply:
    message = error.get("message") or error.get("msg") or error.get("detail") or ""
    nested = _upstream(error)
    if nested is not None:
        inner = read_error(nested, secret)
        if inner is not None and inner.message:
            return msgspec.structs.replace(inner, status=_status(error) or inner.status)
    if isinstance(message, dict):
        return read_error({"error": message}, secret) or ServerReply()
    return ServerReply(
        message=clean_detail(str(message), secret),
        code=_word(error.get("code")),
        kind=_word(error.get("type") or error.get("status")),
        param=str(error["param"]) if isinstance(error.get("param"), str) else "",
        status=_status(error),
    )


def _upstream(error: dict[str, Any]) -> Any:
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str):
        return read_json(raw.encode("utf-8", "replace"))
    return raw


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def _status(error: dict[str, Any]) -> int:
    """The HTTP status an error object names: as a number, else by its words; 0 when it names none."""
    for key in ("code", "status", "status_code", "http_code"):
        value = error.get(key)
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    for key in ("code", "type", "status"):
        known = _STATUS_WORDS.get(_word(error.get(key)))
        if known:
            return known
    return 0
