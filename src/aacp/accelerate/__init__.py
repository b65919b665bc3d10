"""Everything that only makes aacp faster. The library works, more slowly, without this folder."""
