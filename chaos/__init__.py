"""What tries to break the coordinator: a disk that forgets, a disk that fails. Run from the checkout; not installed."""
