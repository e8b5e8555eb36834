"""Which model each answer means, and what happens on doubt or outage."""

import os

from router import router, router_model
from routing_decision import route_decision

from outpost_lsp import ModelRouting, ModelSpec

routing = ModelRouting(
    provider=router,
    model=router_model,
    decision=route_decision,
    question="route",
    models={
        "fast": ModelSpec(os.environ["FAST_MODEL"], max_output_tokens=2_000),
        "deep": ModelSpec(os.environ["DEEP_MODEL"], max_output_tokens=8_000),
    },
    min_confidence=0.85,
    fallback="deep",
    on_error="fallback",
)
