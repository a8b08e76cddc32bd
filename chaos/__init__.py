"""Tests that try to break the coordinator, by disks that forget or fail. Run from the checkout; not installed."""
