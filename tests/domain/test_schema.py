"""SCHEMA-01 to -03: the subset of JSON Schema that tool inputs are declared in."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.domain.schema import check_schema, schema_issues
from outpost_lsp.errors import OutpostError


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object", "pattern": "x"}, "input: the keyword 'pattern' is not supported"),
        ({"properties": {"a": {"items": {"format": "date"}}}}, r"input.a[]: the keyword 'format'"),
        ({"additionalProperties": {"oneOf": []}}, "input.*: the keyword 'oneOf'"),
        ({"type": "text"}, "input: the value of 'type' is malformed"),
        ({"type": []}, "'type' is malformed"),
        ({"type": ["string", 3]}, "'type' is malformed"),
        ({"title": 3}, "'title' is malformed"),
        ({"properties": []}, "'properties' is malformed"),
        ({"properties": {"a": True}}, "input.a: a JSON Schema object is expected"),
        ({"required": "a"}, "'required' is malformed"),
        ({"required": [1]}, "'required' is malformed"),
        ({"additionalProperties": 1}, "'additionalProperties' is malformed"),
        ({"items": []}, "'items' is malformed"),
        ({"enum": []}, "'enum' is malformed"),
        ({"minLength": -1}, "'minLength' is malformed"),
        ({"maxLength": 1.5}, "'maxLength' is malformed"),
        ({"minItems": True}, "'minItems' is malformed"),
        ({"minimum": "1"}, "'minimum' is malformed"),
        ({"maximum": float("nan")}, "'maximum' is malformed"),
        ("string", "input: a JSON Schema object is expected"),
    ],
)
def test_SCHEMA_01_what_is_not_in_the_subset_is_refused_at_any_depth(schema, words):
    with pytest.raises(OutpostError) as caught:
        check_schema(schema)
    assert caught.value.code == "configuration"
    assert words in caught.value.message


def test_SCHEMA_01_every_keyword_of_the_subset_is_accepted():
    check_schema(
        {
            "type": ["object", "null"],
            "title": "t",
            "description": "d",
            "properties": {"a": {"type": "array", "items": {"enum": [1, None]}, "minItems": 0, "maxItems": 2}},
            "required": ["a"],
            "additionalProperties": {"const": {"x": 1}, "minLength": 0, "maxLength": 1, "minimum": -1, "maximum": 1.5},
        }
    )


def test_SCHEMA_02_all_issues_are_reported_with_their_paths():
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 2},
            "items": {"type": "array", "items": {"type": "integer", "maximum": 3}},
        },
        "required": ["text", "other"],
        "additionalProperties": False,
    }
    issues = schema_issues(schema, {"text": "x", "items": [1, "a", 4], "more": 1})
    assert issues == (
        "input.other: is required",
        "input.text: at least 2 characters expected",
        "input.items[1]: expected integer, got string",
        "input.items[2]: at most 3 expected",
        "input.more: there is no such field",
    )


def test_SCHEMA_02_a_type_mismatch_stops_further_checks_of_its_node():
    assert schema_issues({"type": "string", "enum": ["a"], "minLength": 3}, 1) == (
        "input: expected string, got integer",
    )


def test_TEXEC_12_broken_json_arrives_as_text_and_is_no_object():
    assert schema_issues({"type": "object"}, '{"path": ') == ("input: expected object, got string",)


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"type": "string", "maxLength": 2}, "😀😀", True),
        ({"type": "string", "maxLength": 2}, "é́x", False),
        ({"type": "number"}, True, False),
        ({"type": "integer"}, True, False),
        ({"type": "boolean"}, 1, False),
        ({"type": "integer"}, 3.0, True),
        ({"type": "integer"}, 3.5, False),
        ({"type": "number"}, float("inf"), False),
        ({"type": "number"}, float("nan"), False),
        ({"type": "integer"}, 10**400, True),
        ({"type": "integer", "maximum": 5}, 10**400, False),
        ({"enum": [1]}, 1.0, True),
        ({"enum": [1]}, True, False),
        ({"const": {"a": [1, 2]}}, {"a": [1.0, 2]}, True),
        ({"const": [1, 2]}, [2, 1], False),
        ({"const": None}, None, True),
        ({"const": None}, False, False),
        ({"const": "1"}, 1, False),
        ({"enum": [""]}, [], False),
        ({"enum": [[]]}, "", False),
        ({"minimum": 2}, "no number", True),
        ({"minLength": 2}, [], True),
        ({"type": "null"}, None, True),
    ],
)
def test_SCHEMA_03_values_are_compared_as_json(schema, value, fits):
    check_schema(schema)
    assert (schema_issues(schema, value) == ()) is fits


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-3, 3).map(lambda x: round(x, 1))
    | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "minimum": st.integers(-3, 3),
        "maximum": st.integers(-3, 3),
        "minItems": st.integers(0, 3),
        "maxItems": st.integers(0, 3),
    },
)
SCHEMAS = st.recursive(
    KEYWORDS,
    lambda inner: st.builds(
        lambda base, more: {**base, **more},
        KEYWORDS,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
                "additionalProperties": st.booleans() | inner,
                "items": inner,
            },
        ),
    ),
    max_leaves=5,
)


@given(SCHEMAS, VALUES)
def test_the_verdict_is_that_of_a_full_validator(schema, value):
    check_schema(schema)
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (schema_issues(schema, value) == ()) is expected
