"""`/openapi.json`: what the door can be asked, for programs.

Belongs here: the document. Parameters and bodies come from the structs that requests are read with and answers are
written from, so that the two cannot differ; a test asks the door whatever the document allows.
"""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import Struct

from tidemark.gateway.http.errors import ErrorAnswer
from tidemark.gateway.http.questions import forms
from tidemark.gateway.http.routes import QUESTIONS
from tidemark.gateway.http.subscribing import SubscribeQuery
from tidemark.gateway.http.writes.contents import ARROW, JSON, LINES
from tidemark.gateway.http.writes.outcomes import WriteAnswer
from tidemark.gateway.http.writes.writing import LONGEST_TIMEOUT_S, WriteQuery
from tidemark.model.deltas import Delta
from tidemark.model.settings import NAME_PATTERN

_REF = "#/components/schemas/{name}"
# By path of a question: its answer.
ANSWERS: dict[str, tuple[type[Struct], ...]] = {
    "/v1/counts": (forms.OneSignal, forms.AllSignals),
    "/v1/top": (forms.Top,),
    "/v1/windows": (forms.Windows,),
    "/v1/vector": (forms.VectorState,),
    "/v1/nearest": (forms.Nearest,),
    "/v1/status": (forms.Status,),
    "/v1/account": (forms.Account,),
    "/v1/watermarks": (forms.Watermarks,),
}
_WORDS = {
    200: "The answer.",
    400: "A parameter, a header or the body cannot be used. Nothing was taken.",
    401: "A token is needed, or is not known.",
    403: "The token may not do this.",
    404: "There is nothing of that name.",
    405: "There is another method for this.",
    408: "The body came too slowly. Nothing was taken.",
    409: "The number does not follow, or was used for another write; `expected` is the one to send.",
    413: "More than fits into one request. Nothing was taken.",
    415: "The form or the encoding of the body is not known.",
    429: "Turned away for now: nothing was taken. Send it again after `Retry-After`.",
    500: "The home itself is in trouble.",
    503: "Nobody is there to take or answer it now. Nothing was taken. Try again after `Retry-After`.",
    504: "Not in time. For a write: whether it was taken is not known yet, and sending the same again is safe.",
}
_ALWAYS = (401, 403, 405, 503)
_WRITE_ERRORS = (*_ALWAYS, 400, 408, 409, 413, 415, 429, 504)
_READ_ERRORS = (*_ALWAYS, 400, 404, 500, 504)


def document() -> dict[str, Any]:
    """The whole document."""
    kinds: list[type[Struct]] = [
        WriteAnswer,
        ErrorAnswer,
        Delta,
        *(form for several in ANSWERS.values() for form in several),
    ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    by_kind: dict[type[Struct], dict[str, Any]] = dict(zip(kinds, schemas, strict=True))
    answer, error = by_kind[WriteAnswer], by_kind[ErrorAnswer]
    questions = {
        asked.path: {"get": _question(asked.path, asked.query, _any_of(by_kind, ANSWERS[asked.path]), error)}
        for asked in QUESTIONS
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidemark", "version": version("tidemark"), "description": "The HTTP door of a home."},
        "security": [{}, {"token": []}],
        "paths": {
            "/v1/deltas": {"post": _write(answer, error)},
            **questions,
            "/v1/subscribe": {"get": _subscribe(error)},
            "/v1/live": {"get": _plain("live", "What the page shows, once a second.", "text/event-stream", error)},
            "/": {"get": _plain("page", "The page, for people.", "text/html", error)},
            "/metrics": {"get": _plain("metrics", "What is counted, for Prometheus.", "text/plain", error)},
            "/-/healthy": {"get": _plain("healthy", "Whether this process answers.", "application/json", error)},
            "/-/ready": {"get": _plain("ready", "Whether writes are taken.", "application/json", error)},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _any_of(by_kind: dict[type[Struct], dict[str, Any]], several: tuple[type[Struct], ...]) -> dict[str, Any]:
    found = [by_kind[each] for each in several]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _write(answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
    return {
        "operationId": "write",
        "summary": "Send deltas. Each is answered for itself: accepted, duplicate, or refused and why.",
        "description": (
            "Each delta has the form `Delta`; one that has not is refused, and costs no other one. The headers "
            "Tidemark-Producer and Tidemark-Sequence go together, and without Idempotency-Key."
        ),
        "parameters": [
            *_parameters(WriteQuery, {"timeout": {"exclusiveMinimum": 0, "maximum": LONGEST_TIMEOUT_S}}),
            _header("Tidemark-Producer", {"type": "string", "pattern": NAME_PATTERN}, "Who numbers this write."),
            _header("Tidemark-Sequence", number, "The producer's number for it: 1, 2, 3 …"),
            _header("Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": 256}, "Remembered for a day."),
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON.decode(): {"schema": {"anyOf": [{"type": "object"}, {"type": "array", "minItems": 1}]}},
                LINES.decode(): {"schema": {"type": "string", "minLength": 1}},
                ARROW.decode(): {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "responses": _responses(answer, error, _WRITE_ERRORS),
    }


def _question(path: str, query: type[Struct], answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": path.rpartition("/")[2],
        "summary": (query.__doc__ or "").strip(),
        "parameters": _parameters(query, {}),
        "responses": _responses(answer, error, _READ_ERRORS),
    }


def _subscribe(error: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": "subscribe",
        "summary": "Deltas as they are flushed, as server-sent events.",
        "parameters": [
            *_parameters(SubscribeQuery, {}),
            _header("Last-Event-ID", {"type": "string"}, "The id of the last event: what comes after it is delivered."),
        ],
        "responses": _responses({"type": "string"}, error, (*_ALWAYS, 400), "text/event-stream"),
    }


def _plain(name: str, summary: str, media: str, error: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object"} if media == "application/json" else {"type": "string"}
    return {"operationId": name, "summary": summary, "responses": _responses(schema, error, _ALWAYS, media)}


def _parameters(query: type[Struct], more: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    [schema], components = msgspec.json.schema_components([query], ref_template=_REF)
    said = components[schema["$ref"].rpartition("/")[2]]
    required = said.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {**_inlined(each, components), **more.get(name, {})},
        }
        for name, each in said["properties"].items()
    ]


def _inlined(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """A parameter's schema without references; a parameter that is left out needs no null."""
    reference = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", ()) if "$ref" in each), None)
    if reference is not None:
        return {**components[reference.rpartition("/")[2]], **{k: v for k, v in schema.items() if k == "default"}}
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return dict(choices[0]) if len(choices) == 1 else schema


def _header(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": text}


def _responses(
    answer: dict[str, Any], error: dict[str, Any], statuses: Iterable[int], media: str = "application/json"
) -> dict[str, Any]:
    good = {"description": _WORDS[200], "content": {media: {"schema": answer}}}
    bad = {"application/json": {"schema": error}}
    return {
        "200": good,
        **{str(status): {"description": _WORDS[status], "content": bad} for status in sorted(statuses)},
    }
