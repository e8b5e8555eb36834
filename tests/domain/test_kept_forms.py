"""What is made of a message once and kept beside it: that it is never made twice, and never taken for another message's."""

from __future__ import annotations

import copy
import pickle

from outpost_lsp.domain.message import Message, TextBlock, user


def text_of(message: Message) -> bytes:
    return message.text.encode()


def never(_message: Message) -> bytes:
    raise AssertionError("made again")


def test_a_form_is_made_once_and_each_form_for_itself() -> None:
    message = user("hello")
    assert message.encoded("one", text_of) == b"hello"
    assert message.encoded("one", never) == b"hello"
    assert message.kept("two", lambda _: 2) == 2


def test_a_changed_copy_does_not_say_what_the_original_said() -> None:
    message = user("old")
    message.encoded("one", text_of)
    for deep in (False, True):
        changed = message.model_copy(update={"content": (TextBlock(text="new"),)}, deep=deep)
        assert changed.encoded("one", text_of) == b"new"
    assert message.encoded("one", never) == b"old"


def test_a_message_that_was_encoded_equals_one_that_was_not() -> None:
    encoded, fresh = user("hello"), user("hello")
    encoded.encoded("one", text_of)
    assert encoded == fresh
    assert fresh == encoded
    assert encoded != user("other")
    assert hash(encoded) == hash(fresh)


def test_copies_of_every_kind_stay_usable() -> None:
    message = user("hello")
    message.encoded("one", text_of)
    for copied in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert copied == message
        assert copied.encoded("other", text_of) == b"hello"
