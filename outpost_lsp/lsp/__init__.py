"""The editor's face: a thin language server over service/."""
