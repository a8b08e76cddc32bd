"""What a check found, as tests compare it."""

from expectations.results import CheckResult, name_of


def failures(result: CheckResult) -> list[str]:
    """The names of the failed expectations; first those that stop the tables downstream."""
    return [name_of(each) for each in result.failed]
