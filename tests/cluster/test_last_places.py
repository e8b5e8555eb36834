"""Where the last job of each repository went."""

from __future__ import annotations

from outpost_lsp.cluster.last_places import LastPlaces


def test_the_last_node_of_a_repository_is_told() -> None:
    places = LastPlaces()
    assert places.where("a") is None
    places.went("a", "first")
    places.went("b", "second")
    places.went("a", "second")
    assert (places.where("a"), places.where("b")) == ("second", "second")


def test_what_was_not_asked_for_longest_is_forgotten_first() -> None:
    places = LastPlaces(most=2)
    places.went("a", "first")
    places.went("b", "first")
    assert places.where("a") == "first"
    places.went("c", "first")
    assert places.where("b") is None
    assert (places.where("a"), places.where("c")) == ("first", "first")
