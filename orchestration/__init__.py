"""What runs when: definitions, jobs, the orchestrator's instance, the command line and the demo.

Belongs here: putting assets, checks and resources together, and starting them. Does not belong here: computations
(`assets`), rules about tables (`expectations`), connections (`resources`).
"""

import warnings

# Dagster is pinned to one version, and its beta and preview features were tried with it. Repeating these warnings at
# every start would only hide new ones.
warnings.filterwarnings("ignore", message=r"(?s).*is currently in (beta|preview), and may have breaking changes")
