"""The report: one self-contained HTML page that shows a home in plots.

Belongs here, in the order of the work: the numbers (`figures.py`), finding them (`gather.py`), grouping hours
(`timeline.py`), drawing (`plots.py`), plots with their sentences (`exhibits.py`), and the page (`page.py`,
`page.html`). None of this starts a JVM or loads rows into Python: DuckDB counts.
"""
