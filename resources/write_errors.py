"""Errors of a write to a Delta table: the kinds, and a line for each error.

Belongs here: the kinds that the lake raises, and those that a writer may raise, by Spark, by the gateway to it or by
delta-rs. An error does not tell whether the write is there: `lake.py` reads the table's marker.
"""

from tidemark.model.errors import TidemarkError


class LakeError(TidemarkError):
    """Any error of the lake."""


class TableBusyError(LakeError):
    """Another process has the table's lock."""


class WriteFailedError(LakeError):
    """A write raised, and the table's marker shows that nothing of it was committed."""


def write_errors() -> tuple[type[Exception], ...]:
    """The exceptions that a write may raise; none of them tells whether it was committed."""
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return DeltaError, Py4JError, PySparkException, OSError


def said(error: BaseException) -> str:
    """One line of an error: the first, or the last for an error in a Python task, which begins with its trace."""
    from pyspark.errors import PythonException

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1 if isinstance(error, PythonException) else 0] if lines else type(error).__name__
