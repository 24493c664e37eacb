"""For every test: signals as a terminal would have them."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with SIGINT ignored, and all that is started from there inherits it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
