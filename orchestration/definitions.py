"""The one code location: what `workspace.yaml` and `[tool.dg]` point at. Everything is put together in `build.py`."""

from orchestration.build import build_defs

defs = build_defs()
