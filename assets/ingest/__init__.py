"""From sealed segments to `deltas` and `dead_letters`: the drain and the rebuild (decision 0052, two ways)."""
