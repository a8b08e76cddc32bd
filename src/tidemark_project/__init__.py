"""Where Dagster's own command line (`dg`) finds the project; `[tool.dg]` in pyproject.toml names it.

As soon as a project has a folder `src`, `dg` looks for the project's package in there and nowhere else, and imports
with that folder on the path alone. Our folders lie beside it and are not installed, so this puts them on the path.
Everything else loads `workspace.yaml`, which leads to the same definitions. No part of the library, and not installed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
