"""Merging trees: key by key, later wins, and every value knows where it came from."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outpost_lsp.config.faults import Origin
from outpost_lsp.config.merge import MergedTree, leaves

# The machine may be busy: how long a case takes says nothing here.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NAMES = st.sampled_from(["a", "b", "c", "x.y"])
PLAIN = st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.lists(st.integers(), max_size=2))
TREES = st.recursive(
    st.dictionaries(NAMES, PLAIN, max_size=3),
    lambda below: st.dictionaries(NAMES, st.one_of(PLAIN, below), max_size=3),
    max_leaves=8,
)


def merged(*trees: dict[str, Any]) -> MergedTree:
    result = MergedTree()
    for number, tree in enumerate(trees):
        origin = Origin("client", str(number))
        result.add(tree, lambda _path, origin=origin: origin)
    return result


def value_at(tree: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        if not isinstance(tree, dict) or part not in tree:
            return None
        tree = tree[part]
    return tree


@UNHURRIED
@given(TREES, TREES)
def test_every_value_of_the_later_tree_is_in_force(first: dict[str, Any], second: dict[str, Any]) -> None:
    both = merged(first, second)
    for path, value in leaves(second):
        if value == {}:
            assert isinstance(value_at(both.tree, path), dict)
        else:
            assert value_at(both.tree, path) == value
            assert both.origins[path].source == "1"


@UNHURRIED
@given(TREES, TREES)
def test_a_value_of_the_earlier_tree_stays_unless_the_later_one_speaks_of_it(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    both = merged(first, second)
    for path, value in leaves(first):
        spoken_of = any(
            value_at(second, path[:length]) is not None
            and not (isinstance(value_at(second, path[:length]), dict) and length < len(path))
            for length in range(1, len(path) + 1)
        )
        if not spoken_of:
            assert value_at(both.tree, path) == value
            assert both.origins[path].source == "0"


TYPED = st.recursive(
    st.dictionaries(st.sampled_from(["p", "q"]), PLAIN, max_size=2),
    lambda below: st.dictionaries(st.sampled_from(["s", "t"]), below, max_size=2),
    max_leaves=8,
)
"""Trees in which a name is always a table or never, as in settings that fit the schema."""


@UNHURRIED
@given(TYPED, TYPED, TYPED)
def test_merging_is_associative(first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]) -> None:
    assert merged(merged(first, second).tree, third).tree == merged(first, merged(second, third).tree).tree


@UNHURRIED
@given(TREES)
def test_merging_with_nothing_or_with_itself_changes_nothing(tree: dict[str, Any]) -> None:
    assert merged(tree).tree == merged({}, tree).tree == merged(tree, {}).tree == merged(tree, tree).tree == tree


@UNHURRIED
@given(TREES, TREES)
def test_origins_speak_of_exactly_what_is_there(first: dict[str, Any], second: dict[str, Any]) -> None:
    both = merged(first, second)
    assert set(both.origins) == {path for path, _ in leaves(both.tree)}


@UNHURRIED
@given(TREES, TREES)
def test_merging_leaves_its_inputs_alone(first: dict[str, Any], second: dict[str, Any]) -> None:
    before = repr((first, second))
    both = merged(first, second)
    both.tree.clear()
    assert repr((first, second)) == before


def test_the_origin_of_a_table_is_that_of_what_is_in_it_and_of_something_missing_its_neighbours() -> None:
    both = merged({"a": {"b": 1}}, {"a": {"c": 2}})
    table, missing, nothing = both.origin(("a",)), both.origin(("a", "z")), merged({}).origin(("a",))
    assert table is not None
    assert table.source == "1"
    assert missing is not None
    assert missing.source == "1"
    assert nothing is None
