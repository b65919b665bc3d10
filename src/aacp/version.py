"""The version of aacp: the package metadata and the run files read it here."""

__version__ = "0.1.0"
