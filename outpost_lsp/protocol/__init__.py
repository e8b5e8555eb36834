"""The wire records of the editor protocol, shared by both faces; knows no LSP library."""
