"""The reviewer as a tool that another agent may call."""

from reviewer import reviewer

from outpost_lsp import Subagent

review = Subagent(
    name="review",
    description="Delegates the inspection of a part of the repository to a reviewer. Say what to look at and why.",
    agent=reviewer,
)

tools = [review]
