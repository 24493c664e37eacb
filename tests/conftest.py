"""For every test: signals as a terminal would have them, and no deadline for what hypothesis tries."""

from __future__ import annotations

import signal

import hypothesis

# A shell starts what runs in its background with SIGINT ignored, and whatever is started there inherits it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("rankside", deadline=None)  # a busy machine is no finding
hypothesis.settings.load_profile("rankside")
