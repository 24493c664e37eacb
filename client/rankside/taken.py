"""Whether what is being printed has been recorded already: by the captures of logging, or by rankside itself.

Separate because two captures ask it (of print, and of the descriptors), and the answer lies in other
libraries' frames: only who prints can be told, not what.
"""

from __future__ import annotations

import logging
from types import FrameType

from rankside import console, logs, transport

_NEAR = 24  # frames between a handler and the stream it writes to; rich takes some ten
_HANDLE = logging.Handler.handle.__code__
_HANDLE_ERROR = logging.Handler.handleError.__code__
_SINKS = "_simple_sinks.py"  # where loguru writes; what it says of a sink's errors comes from elsewhere
# Ours that print, or let print what they have recorded
_WRITERS = {
    console.__file__: {"write"},
    transport.__file__: {"warn"},
    logs.__file__: {"show", "hook", "thread_hook"},
}


def is_taken(frame: FrameType | None) -> bool:
    """Whether `frame` writes for a handler or sink whose record the captures have, or for rankside."""
    for _ in range(_NEAR):
        if frame is None:
            return False
        code = frame.f_code
        if code is _HANDLE:
            return True
        if code is _HANDLE_ERROR:
            return False
        name = code.co_filename
        if name in _WRITERS:
            if code.co_name in _WRITERS[name]:
                return True
        elif name.endswith(_SINKS) and "loguru" in name:
            return True
        frame = frame.f_back
    return False
