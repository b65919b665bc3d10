"""Errors of a worker as plain data, so that nothing of them must be unpickled by the process that searches."""

from __future__ import annotations

from aacp import errors
from aacp.errors import AACPError, WorkerFailed, first_line, is_device_failure


def described(error: BaseException, place: str) -> tuple[str, str]:
    """The name of an error class of aacp (its own, or that of its nearest ancestor in aacp.errors), and a message."""
    if isinstance(error, AACPError):
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__), str(error)
    remedy = "Correct it"
    if is_device_failure(error):
        remedy = "Use fewer workers, smaller batches or fewer calibration images, or other devices"
    message = f"A worker on {place} failed: {first_line(error)}. {remedy}; with a run folder, the same call resumes."
    return WorkerFailed.__name__, message


def rebuilt(name: str, message: str) -> AACPError:
    """The error that `described` has described."""
    error: AACPError = getattr(errors, name)(message)
    return error
