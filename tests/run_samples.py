"""`make run`: `python -m tests.run_samples COMMAND...`; see tests.containerd.run.session.

A Ctrl-C during its imports, which take a second on a busy machine, ends it without a traceback.
"""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tests.containerd.run import session

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(session.main(sys.argv[1:]))
