"""Reports: one self-contained HTML page about one or more runs, made from their folders."""
