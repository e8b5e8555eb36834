"""Frozen records and pure rules: the words of the product. No input or output, no clock."""
