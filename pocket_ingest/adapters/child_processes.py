"""Child processes that do not outlive us.

Here: the request to the kernel that a child is told when its parent dies.
Not here: which children there are (embedded_postgres.py, stack/).
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # prctl(2)


def follow_parent(number: signal.Signals) -> Callable[[], None] | None:
    """A ``preexec_fn`` with which, on Linux, a child gets a signal when its parent dies.

    The signal comes when the *thread* that forked ends (prctl(2)), so it is only asked for in the
    main thread, and it is cleared by a change of user, so it must come after that. Elsewhere None:
    an orphan lives on until the next start ends it.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask
