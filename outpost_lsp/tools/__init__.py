"""What agents can do: the built-in toolsets."""
