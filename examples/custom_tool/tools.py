"""Tools of your own: one made from the signature of a function, one spelled out."""

from outpost_lsp import Tool, ToolContext, ToolOutput, tool


@tool(read_only=True)
async def count_words(path: str, context: ToolContext) -> str:
    """Count the words of a text file of the repository."""
    content = await context.sandbox.files.read(path, limit=1_000_000)
    return f"{path}: {len(content.decode().split())} words"


OWNERS = {"docs": "the writers", "src": "the programmers"}


def find_owner(given, _context):
    folder = given["path"].split("/")[0]
    if folder not in OWNERS:
        return ToolOutput(f"nobody owns {given['path']}", is_error=True)
    return f"{given['path']} belongs to {OWNERS[folder]}"


owner = Tool(
    name="find_owner",
    description="Say who owns a path of the repository.",
    input={
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1}},
        "required": ["path"],
        "additionalProperties": False,
    },
    execute=find_owner,
    read_only=True,
    resources=lambda given: {"paths": [given["path"]]},
)
