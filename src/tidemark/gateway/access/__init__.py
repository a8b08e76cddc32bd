"""Who may come in, and how many: tokens, certificates, places (W3, W10)."""
