"""The question that is asked before every step."""

from outpost_lsp import Choice, Decision

route_decision = Decision(
    {
        "route": Choice(
            "Choose the model depth for the next step.",
            {"fast": "Routine tools", "deep": "Reasoning or repairs"},
        )
    }
)
