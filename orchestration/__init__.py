"""What runs when: definitions, jobs, the orchestrator's instance, the command line and the demo.

Belongs here: putting assets, checks and resources together, and starting them. Does not belong here: what is computed
(`assets`), what must be true (`expectations`), what is talked to (`resources`).
"""

import warnings

# Dagster is pinned to one version, which was tried with what it calls beta and preview; saying so at every start
# would only hide what is new.
warnings.filterwarnings("ignore", message=r"(?s).*is currently in (beta|preview), and may have breaking changes")
