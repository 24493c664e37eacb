"""Where the files of a W&B run lie: in the run's folder, or beside its state where that cannot be made.

Separate because a run's state may be copied to a machine with internet, on which nobody can make the folder
that the training had. To bring the rows to a server from there, none is needed.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

# That wait for nothing; a stale handle or a full disk may pass, and is tried again
_LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)


def usable(base: Path, beside: Path, offline: Callable[[], bool]) -> Path:
    """`base`, made; or `beside`, where it cannot be and the rows need not stay in it. Raises OSError."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK | os.X_OK):
            return base
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if error.errno not in _LASTING:
            raise
        if offline():
            told = f"offline, and {base}, where the rows are to be, cannot be written to: {error.strerror}"
            raise OSError(error.errno, told) from None
        log.warning("%s cannot be written to (%s); what is kept lies in %s", base, error.strerror, beside)
    beside.mkdir(parents=True, exist_ok=True)
    return beside
