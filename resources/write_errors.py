"""Errors of a write to a Delta table: which there are, and what each says in a line.

Belongs here: the kinds that the lake raises, and what a writer may raise, by Spark, by the gateway to it or by
delta-rs. Whether the write is there is not for an error to say: `lake.py` reads the table's marker.
"""

from tidemark.model.errors import TidemarkError


class LakeError(TidemarkError):
    """Any error of the lake."""


class TableBusyError(LakeError):
    """Another process holds the table's lock."""


class WriteFailedError(LakeError):
    """A write raised, and the table's marker says that it is not there: nothing of it was committed."""


def write_errors() -> tuple[type[Exception], ...]:
    """What a write may raise; none of them says whether it is there."""
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return DeltaError, Py4JError, PySparkException, OSError


def said(error: BaseException) -> str:
    """What an error says in a line: the first, or of one in a task of Python, whose trace it begins with, the last."""
    from pyspark.errors import PythonException

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1 if isinstance(error, PythonException) else 0] if lines else type(error).__name__
