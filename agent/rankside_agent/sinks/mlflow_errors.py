"""What MLflow's many exceptions mean: the tracker is away, or it has given a verdict on what was sent.

Separate because values are lost where this is wrong. Only an answer that speaks of an invalid value is a
verdict, and a 413; whatever else goes wrong, inside the client too, is waited for.
"""

from __future__ import annotations

from rankside_agent.sinks.answers import NoAnswer


class Away(ConnectionError):
    """The tracker takes nothing now."""


class NoFolder(Away):
    """The tracker's address is relative, and to what is not known yet."""


class Broken(Away):
    """The tracker failed at this request; that may be the request's fault, but is no verdict on it."""


class Refused(Exception):
    """A verdict: the tracker will never take this."""


class Misplaced(Refused):
    """A verdict on the place, not on what was sent there."""


class Unfit(Refused):
    """A file that cannot be read, or is none to be uploaded."""


class Missing(Misplaced):
    """What was named does not exist there."""


_KINDS: dict[str, type[Exception]] = {
    "BAD_REQUEST": Broken,  # says nothing of values: a quota, say
    "INTERNAL_ERROR": Broken,
    "INVALID_PARAMETER_VALUE": Refused,
    "MALFORMED_REQUEST": Refused,
    "RESOURCE_ALREADY_EXISTS": Misplaced,
    "RESOURCE_DOES_NOT_EXIST": Missing,
}
_SIGNS: dict[str, type[Exception]] = {
    "too many 500 error responses": Broken,
    "failed with error code 500": Broken,
    "failed with error code 413": Refused,  # too large for something on the way
    "413 Client Error": Refused,
}


def sorted_out(error: Exception, text: str, remote: bool) -> Exception:
    """One of the kinds above; `text` is the error's, fit to be shown."""
    from mlflow.exceptions import MlflowException, RestException

    if isinstance(error.__context__, NoAnswer):  # MLflow's client quotes it, whatever words it may hold
        return Away(text)
    known = isinstance(error, MlflowException)
    if isinstance(error, RestException) or (known and not remote):
        return _KINDS.get(getattr(error, "error_code", ""), Away)(text)
    for sign, kind in _SIGNS.items():
        if sign in text:
            return kind(text)
    text = text if known else f"{type(error).__name__}: {text}"
    # A token that fits in no header, or a login page instead of JSON, raises ValueError as well
    return Broken(text) if isinstance(error, TypeError | ValueError) else Away(text)
