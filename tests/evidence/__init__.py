"""What README.md and the pages of docs/ state as measured, computed from the raw output in benchmarks/results.

Each module `of_SUBJECT` has the tables and the sentences of a page, or of a part of one. claims.py registers them,
pages.py finds the numbers of a page, and test_evidence.py fails if one of them looks measured and is not computed.
"""
