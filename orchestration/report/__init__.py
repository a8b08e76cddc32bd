"""The report: one HTML page that shows a home in plots, and needs nothing but itself to be looked at.

Belongs here, in the order of the work: what is known (`figures.py`), finding it (`gather.py`), putting hours
together (`timeline.py`), drawing (`plots.py`), what is shown with what sentence (`exhibits.py`), and the page
(`page.py`, `page.html`). No JVM is started for any of it, and no row comes into Python: DuckDB counts.
"""
