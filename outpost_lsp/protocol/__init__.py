"""The wire records of the editor protocol, shared by the faces; knows URIs and UTF-16, no pygls."""
