"""Lossless JSON: what is accepted, what is refused, and that the check runs no code of the value."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from outpost_lsp.domain.lossless import lossless_fault, why_no_object

MAX = 2**53 - 1

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.integers(-MAX, MAX)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: str(number) != "-0.0"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


class Text(str):
    __slots__ = ()


class Number(IntEnum):
    ONE = 1


class Model(BaseModel):
    name: str = "x"


@dataclass
class Data:
    name: str = "x"


@pytest.mark.parametrize(
    "value", [None, True, False, "", "text", 0, -1, 1.5, MAX, -MAX, [], {}, [1, [2]], {"a": [None]}]
)
def test_JSON_01_plain_values_are_accepted(value: Any) -> None:
    assert lossless_fault(value) is None


@settings(deadline=None)
@given(json_values)
def test_JSON_01_whatever_is_accepted_survives_a_trip_through_json(value: Any) -> None:
    assert lossless_fault(value) is None
    assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (float("nan"), "value: the number is not finite"),
        (float("inf"), "value: the number is not finite"),
        (float("-inf"), "value: the number is not finite"),
        (-0.0, "value: negative zero"),
        ({1: "a"}, "value: a key of type int is not text"),
        ({None: "a"}, "value: a key of type NoneType is not text"),
        ({Text("a"): "a"}, "value: a key of type Text is not text"),
        (datetime(2026, 1, 1, tzinfo=UTC), "value: datetime is not JSON"),
        (b"bytes", "value: bytes is not JSON"),
        ({"a": {1, 2}}, "value.a: set is not JSON"),
        ([0, float("nan")], "value[1]: the number is not finite"),
        ({"a": [{"b": -0.0}]}, "value.a[0].b: negative zero"),
        (object(), "value: object is not JSON"),
        (1j, "value: complex is not JSON"),
    ],
)
def test_JSON_02_what_json_cannot_hold_is_refused_with_its_place(value: Any, fault: str) -> None:
    assert lossless_fault(value) == fault


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ((1, 2), "tuple"),
        (OrderedDict(a=1), "OrderedDict"),
        (Text("a"), "Text"),
        (Number.ONE, "Number"),
        (Model(), "Model"),
        (Data(), "Data"),
        (range(3), "range"),
    ],
)
def test_JSON_03_only_the_exact_builtin_types_count(value: Any, name: str) -> None:
    assert lossless_fault({"inner": value}) == f"value.inner: {name} is not JSON"


@pytest.mark.parametrize("value", [MAX + 1, -MAX - 1, 10**400])
def test_JSON_03_integers_beyond_the_safe_range_are_refused(value: int) -> None:
    assert lossless_fault([value]) == "value[0]: the integer is beyond 2^53 - 1"


def test_JSON_02_a_value_that_contains_itself_is_refused() -> None:
    cycle: dict[str, Any] = {"list": []}
    cycle["list"].append(cycle)
    assert lossless_fault(cycle) == "value.list[0]: the value contains itself"
    loop: list[Any] = []
    loop.append(loop)
    assert lossless_fault(loop, "state") == "state[0]: the value contains itself"


def test_JSON_04_a_value_shared_twice_without_a_cycle_is_accepted() -> None:
    shared = {"a": [1, 2]}
    assert lossless_fault({"left": shared, "right": [shared, shared]}) is None


def test_JSON_02_nothing_user_defined_is_executed_while_checking() -> None:
    ran: list[str] = []

    class Meta(type):
        @property
        def __name__(cls) -> str:
            ran.append("metaclass")
            return "boo"

    class Nosy(dict, metaclass=Meta):  # type: ignore[type-arg]
        def items(self) -> Any:
            ran.append("items")
            return super().items()

        def __iter__(self) -> Any:
            ran.append("iter")
            return super().__iter__()

        def __repr__(self) -> str:
            ran.append("repr")
            return "boo"

        def __hash__(self) -> int:  # type: ignore[override]
            return 1

        def __eq__(self, other: object) -> bool:
            ran.append("eq")
            return True

    assert lossless_fault({"inner": Nosy(a=1)}) == "value.inner: Nosy is not JSON"
    assert lossless_fault({Nosy(): 1}) == "value: a key of type Nosy is not text"
    assert ran == []


def test_JSON_01_depth_alone_is_no_fault_and_no_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert lossless_fault(deep) is None
    broken: list[Any] = [float("nan")]
    for _ in range(10_000):
        broken = [broken]
    fault = lossless_fault(broken)
    assert fault is not None
    assert fault.endswith("[0]: the number is not finite")
    while deep:  # A nest this deep is taken apart by hand, since freeing it in one go is recursive in the interpreter.
        deep = deep[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"path": ', "no JSON, they end in the middle (line 1, column 10, after '{\"path\": '); send them whole"),
        (
            '{"a": 1 "b"}',
            "no JSON: Expecting ',' delimiter (line 1, column 9, after '{\"a\": 1 '); send one JSON object",
        ),
        ("hello", "no JSON: Expecting value (line 1, column 1); send one JSON object"),
        ('{"a": NaN}', "cannot be taken: input.a: the number is not finite"),
        ("[1]", "cannot be taken: an object is expected, this is list"),
        ('{"a": 1}', "are an object inside a text; send the object itself"),
        ("[" * 100_000, "that can be kept"),
    ],
)
def test_TEXEC_12_a_model_is_told_what_is_wrong_with_its_arguments_and_where(text: str, told: str) -> None:
    assert told in why_no_object(text)
