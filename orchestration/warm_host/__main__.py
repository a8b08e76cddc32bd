"""`python -m orchestration.warm_host HOME`: the warm host of a home, in a session of its own.

Belongs here: leaving whoever started it behind. `host.py` does the rest.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # whoever started the host need not wait for it, nor for its end
    os.setsid()
    from orchestration.warm_host.host import serve
    from tidemark.storage.home import Home

    serve(Home(Path(sys.argv[1])))
