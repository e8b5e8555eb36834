"""One dispatch, from brief to result."""
