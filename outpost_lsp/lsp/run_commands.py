"""Commands that start runs, stop them, speak to them and tell about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.harness.steering import ANYONE
from outpost_lsp.lsp.commands import when_ready
from outpost_lsp.lsp.reporter import REQUEST, Request
from outpost_lsp.protocol import commands as shapes
from outpost_lsp.protocol.records import cost_json, usage_json
from outpost_lsp.service.handle import RunHandle

if TYPE_CHECKING:
    from outpost_lsp.lsp.commands import Handler, Result
    from outpost_lsp.lsp.desk import Desk
    from outpost_lsp.lsp.progress import Token
    from outpost_lsp.service.timeline_shape import Step


async def _review(desk: Desk, params: shapes.ReviewParams, token: Token | None) -> Result:
    workspace, path = await desk.pick(params.uri)
    await workspace.ready()
    is_of_file = params.scope in ("file", "selection")
    scope = ReviewScope(
        scope=params.scope,
        paths=(path,) if is_of_file and path else (),
        span=desk.places.span(workspace, path, params.range) if params.range is not None else None,
        base=params.base,
        revision=params.revision,
    )
    asked = params.model_dump(by_alias=True, exclude_none=True, include={"scope", "uri", "range", "base", "revision"})
    unsaved = await desk.unsaved(workspace)
    with request(token, asked):
        handle = await desk.outpost.review(
            workspace,
            scope,
            agent=params.agent,
            brief=params.brief,
            unsaved=unsaved,
            confirm=desk.confirm_cost,
        )
    return await answer_run(desk, handle, params)


async def _coordinate(desk: Desk, params: shapes.CoordinateParams, token: Token | None) -> Result:
    workspace, _ = await desk.pick(params.uri)
    unsaved = await desk.unsaved(workspace)
    with request(token):
        handle = await desk.outpost.coordinate(workspace, params.brief, params.agent, unsaved=unsaved)
    return await answer_run(desk, handle, params)


async def _dispatch(desk: Desk, params: shapes.DispatchParams, token: Token | None) -> Result:
    workspace, _ = await desk.pick(params.uri)
    unsaved = await desk.unsaved(workspace)
    with request(token):
        handle = await desk.outpost.run_agent(workspace, params.agent, params.brief, unsaved=unsaved)
    return await answer_run(desk, handle, params)


async def _fix(desk: Desk, params: shapes.FixParams, token: Token | None) -> Result:
    await desk.all_ready()
    workspace = desk.workspace_of_finding(params.finding_id)
    unsaved = await desk.unsaved(workspace)
    with request(token):
        handle = await desk.outpost.fix(workspace, params.finding_id, agent=params.agent, unsaved=unsaved)
    return await answer_run(desk, handle, params)


async def _continue(desk: Desk, params: shapes.ContinueParams, token: Token | None) -> Result:
    await desk.all_ready()
    workspace = desk.workspace_of_conversation(params.conversation)
    unsaved = await desk.unsaved(workspace)
    limits = params.limits.model_dump(exclude_none=True) if params.limits is not None else None
    with request(token):
        handle = await desk.outpost.continue_conversation(
            workspace,
            params.conversation,
            params.brief,
            agent=params.agent,
            limits=limits,
            fork=params.fork,
            unsaved=unsaved,
        )
    return await answer_run(desk, handle, params)


def _cancel(desk: Desk, params: shapes.RunParams) -> Result:
    return {"cancelled": desk.outpost.cancel(params.run_id)}


async def _steer(desk: Desk, params: shapes.SteerParams, _: Token | None) -> Result:
    await desk.all_ready()
    target = params.subagent if "subagent" in params.model_fields_set else ANYONE
    delivery = await desk.outpost.steer(params.run_id, params.text, target)
    return {"delivery": delivery.mode}


def _runs(desk: Desk, params: shapes.RunsParams, _: Token | None) -> Result | Awaitable[Result]:
    """At once, but for interrupted runs of which it is not known yet whether they changed something."""

    async def wait() -> Result:
        await desk.all_ready()
        if any(run.status == "interrupted" for run in desk.outpost.runs(params.limit, params.status)):
            for workspace in desk.outpost.workspaces:
                await workspace.cleared()
        return answer()

    def answer() -> Result:
        return {"runs": [desk.reporter.run(run) for run in desk.outpost.runs(params.limit, params.status)]}

    if not desk.is_ready:
        return wait()
    told = answer()
    return wait() if any(run["status"] == "interrupted" for run in told["runs"]) else told


async def _show(desk: Desk, params: shapes.ViewParams, _: Token | None) -> Result:
    await desk.all_ready()
    workspace, run = desk.outpost.find_run(params.run_id)
    if run.status == "interrupted":
        # Only then is it known whether it changed something.
        await workspace.cleared()
        run = desk.outpost.find_run(run.id)[1]
    told = await asyncio.to_thread(desk.outpost.timeline, run.id)
    shown = {"opened": await desk.show(workspace, run, "report.md")} if params.open else {}
    return {
        "run": desk.reporter.run(run),
        "steps": [_step_json(step) for step in told.steps],
        "subagents": [subagent.to_json() for subagent in told.subagents],
        "routes": [route.to_json() for route in told.routes],
        **({} if told.untold is None else {"untold": told.untold}),
        **shown,
    }


async def _transcript(desk: Desk, params: shapes.TranscriptParams, _: Token | None) -> Result:
    await desk.all_ready()
    workspace = desk.workspace_of_conversation(params.conversation)
    return {"messages": await asyncio.to_thread(workspace.conversations.read, params.conversation)}


async def answer_run(desk: Desk, handle: RunHandle, params: shapes.Startable) -> Result:
    """The run as it is, or as it ended; who gives up waiting gives up the run."""
    if params.wait:
        try:
            await handle.wait()
        except asyncio.CancelledError:
            handle.cancel()
            raise
    return {"run": desk.reporter.run(handle.run)}


class request:  # noqa: N801 - reads as a statement
    """What came with the request, for the news of the run that starts inside."""

    def __init__(self, token: Token | None, scope: dict[str, Any] | None = None) -> None:
        self._request = Request(token, scope)

    def __enter__(self) -> None:
        self._reset = REQUEST.set(self._request)

    def __exit__(self, *_: object) -> None:
        REQUEST.reset(self._reset)


def _step_json(step: Step) -> Result:
    body = step.to_json() | {"usage": usage_json(step.usage)}
    if cost_json(step.cost) is None:
        body.pop("cost", None)
    return body


HANDLERS: Final[dict[str, Handler]] = {
    "outpost.review": _review,
    "outpost.coordinate": _coordinate,
    "outpost.dispatch": _dispatch,
    "outpost.fix": _fix,
    "outpost.continue": _continue,
    "outpost.cancel": when_ready(_cancel),
    "outpost.steer": _steer,
    "outpost.runs": _runs,
    "outpost.show": _show,
    "outpost.transcript": _transcript,
}
