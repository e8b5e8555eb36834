"""The same routing with a small state, for a router that limits what it reads."""

from routing import routing


def focused_state(context):
    recent = [block.text for message in context.messages[-4:] for block in message.content if block.type == "text"]
    return {"step": context.step, "activeModel": context.model.name, "recentText": recent}


focused_routing = routing.replace(state=focused_state)
