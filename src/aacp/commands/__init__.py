"""The commands that need more options than a page holds; `aacp.cli` puts them together."""
