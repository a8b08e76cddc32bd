"""Ratios against peers, on the same data in the same run; run by hand and by a nightly job."""
