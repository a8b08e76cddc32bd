"""The one code location: `workspace.yaml` and `[tool.dg]` point at it. `build.py` puts everything together."""

from orchestration.build import build_defs

defs = build_defs()
