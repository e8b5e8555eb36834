"""Going on with a result: resume and fork (DISP-11 to DISP-13, CONV-07, CONV-08, CONV-13)."""

from __future__ import annotations

import pytest

from outpost_lsp import Agent, FallbackAgent, Harness, OutpostError, Steering, open_sandbox
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from tests.harness.stage import Stage, provider, says


async def test_DISP_11_a_result_is_resumed_with_its_options_and_forked_without_touching_it(stage: Stage) -> None:
    model = provider(says("one"), says("two"), says("three"), says("four"))
    first = await stage.run(Agent("m", Harness(model)), "first", steering=Steering(), label="me")
    second = await first.resume("second")
    assert second.conversation == first.conversation
    assert [message.text for message in model.requests[1].messages] == ["first", "one", "second"]
    before = second.transcript.read_bytes()  # type: ignore[union-attr]
    copy = await second.fork("aside")
    assert copy.conversation != first.conversation
    assert second.transcript.read_bytes() == before  # type: ignore[union-attr]
    other = Agent("other", Harness(provider(says("five"))))
    assert (await copy.resume("more", agent=other)).text == "five"


async def test_DISP_11_without_a_conversation_there_is_nothing_to_go_on_with(stage: Stage) -> None:
    result = await stage.run(Agent("m", Harness(provider(says("one")), conversations=None)))
    for attempt in (result.resume("x"), result.fork("x")):
        with pytest.raises(OutpostError) as caught:
            await attempt
        assert caught.value.code == "configuration"


async def test_DISP_12_in_an_open_sandbox_its_settings_cannot_change(stage: Stage) -> None:
    subject = Agent("m", Harness(provider(says("one"), says("two"))))
    provider_ = WorktreeSandboxProvider(layout=stage.layout)
    async with open_sandbox(stage.repository, agent=subject, sandbox_provider=provider_) as sandbox:
        result = await sandbox.dispatch("go")
        with pytest.raises(OutpostError, match="repository"):
            await result.resume("x", repository=stage.repository)
        assert (await result.resume("x")).text == "two"


async def test_DISP_13_FALL_08_a_fallback_result_goes_on_with_the_candidate_that_answered(stage: Stage) -> None:
    down = OutpostError("provider", "HTTP 503", {"unavailable": "HTTP 503"})
    second = provider(says("two"), says("more"))
    agent = FallbackAgent([Agent("a", Harness(provider(down))), Agent("b", Harness(second))], ["unavailable"])
    result = await stage.run(agent)
    assert (await result.resume("go on")).text == "more"
    assert len(second.requests[1].messages) == 3
