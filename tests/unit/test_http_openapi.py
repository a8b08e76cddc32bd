"""`/openapi.json` is complete and true: the door is asked whatever the document allows, and answers as it says."""

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.http_served import HttpServed, http_served, view
from tidemark.gateway.http.openapi import ANSWERS, document
from tidemark.gateway.http.questions.reads import Question
from tidemark.gateway.http.routes import QUESTIONS

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# What goes on for ever, or is for people, is asked in tests of its own.
ENDLESS = ("/v1/subscribe", "/v1/live", "/")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with http_served(tmp_path_factory.mktemp("openapi") / "home", "[namespaces.shop]\ndimension = 2\n") as found:
        vector = {"vector_id": "v", "op": "create", "values": [1.0, 2.0]}
        found.post(view("a"), view("v", kind="vector", signal=None, vector=vector))
        found.served.platform.seal()
        yield found


def test_the_document_names_every_route_that_there_is(door: HttpServed) -> None:
    said = door.client.get("/openapi.json").json()
    assert said == msgspec.json.decode(msgspec.json.encode(document()))
    assert said["openapi"] == "3.1.0"
    for path, methods in said["paths"].items():
        [method] = methods
        other = {"get": "POST", "post": "GET"}[method]
        answer = door.client.request(other, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, method.upper())
    assert {asked.path for asked in QUESTIONS} == set(ANSWERS) <= set(said["paths"])


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: str(asked.path))
def test_every_parameter_of_a_question_is_in_the_document(asked: Any) -> None:
    said = document()["paths"][asked.path]["get"]
    assert issubclass(asked.query, Question)
    assert [each["name"] for each in said["parameters"]] == list(asked.query.__struct_fields__)
    assert said["summary"]


@pytest.mark.parametrize(
    "query",
    [
        "/v1/counts?entity=item-7&namespace=shop",
        "/v1/counts?entity=item-7&namespace=shop&signal=view",
        "/v1/top?namespace=shop&signal=view&window=all",
        "/v1/status",
        "/v1/account",
        "/v1/watermarks",
    ],
)
def test_an_answer_has_the_form_that_the_document_gives(door: HttpServed, query: str) -> None:
    said = document()
    schema = said["paths"][query.partition("?")[0]]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    answer = door.client.get(query)
    assert answer.status_code == 200
    Draft202012Validator({**schema, "components": said["components"]}).validate(answer.json())
    # Nothing is in it that the document does not name.
    names = set[str]()
    for each in schema.get("anyOf", [schema]):
        names |= set(said["components"]["schemas"][each["$ref"].rpartition("/")[2]]["properties"])
    assert set(answer.json()) <= names


def _ask_whatever_is_allowed(door: HttpServed, examples: int) -> None:
    schema = schemathesis.openapi.from_dict(document()).exclude(path=list(ENDLESS))

    for operation in schema.get_all_operations():
        assert isinstance(operation, Ok)

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.ok().as_strategy())
        def ask(case: Any) -> None:
            if case.path == "/v1/deltas":  # one that is wanted durable waits for a drain, and none comes
                case.query = {**(case.query or {}), "timeout": 0.5}
            case.validate_response(case.call(base_url=door.url), checks=CHECKS)

        ask()


def test_whatever_the_document_allows_is_answered_as_it_says(door: HttpServed) -> None:
    _ask_whatever_is_allowed(door, examples=25)
    assert httpx.get(f"{door.url}/-/ready").status_code == 200


@pytest.mark.slow
def test_much_of_what_the_document_allows_is_answered_as_it_says(door: HttpServed) -> None:
    _ask_whatever_is_allowed(door, examples=1_500)
