"""Compiled loops do what they say as plain Python, are compiled once, and take nothing that they would misread."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

from tidemark.arrays.compiled import MODULES, Compiled, compiled

SOURCE = """
import numpy as np
import numpy.typing as npt
from tidemark.arrays.compiled import compiled

STEP = {step}
Table = np.ndarray[tuple[int, int], np.dtype[np.int32]]

@compiled
def grown(number: int) -> int:
    return number + STEP

@compiled
def total(numbers: npt.NDArray[np.int64], marks: npt.NDArray[np.bool_], scale: float) -> float:
    found = 0
    for row in range(len(numbers)):
        if marks[row]:
            found += grown(numbers[row])
    return found * scale

@compiled
def transpose(table: Table, into: Table) -> None:
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            into[column, row] = table[row, column]

@compiled
def clear(numbers: npt.NDArray[np.int64]) -> None:
    for row in range(len(numbers)):
        numbers[row] = 0
"""


def module(directory: Path, step: int) -> ModuleType:
    path = directory / f"loops{step}" / "loops.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SOURCE.format(step=step))
    spec = importlib.util.spec_from_file_location("loops", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


NUMBERS = np.array([1, 2, 3])
MARKS = np.array([True, False, True])


def test_a_compiled_function_gives_what_it_gives_as_plain_python(tmp_path: Path) -> None:
    found = module(tmp_path, 10)
    assert found.total(NUMBERS, MARKS, 0.5) == found.total.plain(NUMBERS, MARKS, 0.5) == 12.0


def test_an_annotation_may_say_that_there_are_two_dimensions(tmp_path: Path) -> None:
    found = module(tmp_path, 10)
    table = np.arange(6, dtype=np.int32).reshape(2, 3)
    into = np.zeros((3, 2), dtype=np.int32)
    found.transpose(table, into)
    assert into.tolist() == table.T.tolist()
    with pytest.raises(TypeError, match="transpose takes an array of int32 of two dimensions without gaps, not int32"):
        found.transpose(table.T, into)


def in_a_process(tmp_path: Path, code: str) -> list[str]:
    """What a new process says that runs this with the loops, and whether it needed the compiler."""
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import loops, numpy as np; {code}, 'numba' in sys.modules)"
    command = [sys.executable, "-c", code, str(tmp_path / "loops10")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_who_finds_the_machine_code_needs_no_compiler(tmp_path: Path) -> None:
    found = module(tmp_path, 10)
    found.total(NUMBERS, MARKS, 1.0)
    code = "print(loops.total(np.array([1, 2, 3]), np.array([True, False, True]), 1.0)"
    assert in_a_process(tmp_path, code) == ["24.0", "False"]


def test_kept_machine_code_finds_what_it_calls(tmp_path: Path) -> None:
    """A loop that clears an array becomes a call of `memset`, which a process without the compiler must know, too."""
    module(tmp_path, 10).clear(np.arange(1_000))
    code = "numbers = np.arange(1_000); loops.clear(numbers); print(numbers.sum()"
    assert in_a_process(tmp_path, code) == ["0", "False"]


def test_another_number_in_the_module_makes_other_machine_code(tmp_path: Path) -> None:
    files = {module(tmp_path, step).total._file().name for step in (10, 11)}
    assert len(files) == 2
    assert module(tmp_path, 11).total(NUMBERS, MARKS, 1.0) == 26.0


@pytest.mark.parametrize(
    "wrong",
    [
        NUMBERS.astype(np.int32),
        NUMBERS.astype(np.float64),
        np.arange(6)[::2],
        np.arange(6).reshape(2, 3),
    ],
)
def test_an_array_that_would_be_misread_is_refused(tmp_path: Path, wrong: npt.NDArray[np.int64]) -> None:
    with pytest.raises(TypeError, match="total takes an array of int64 without gaps"):
        module(tmp_path, 10).total(wrong, MARKS, 1.0)


def test_what_is_no_number_and_no_array_cannot_be_compiled() -> None:
    def greet(name: str) -> None: ...

    with pytest.raises(TypeError, match="greet is annotated with <class 'str'>"):
        compiled(greet)("you")

    def both(number: int) -> tuple[int, int]:
        return number, number

    with pytest.raises(TypeError, match="both returns tuple"):
        compiled(both)(1)


def test_set_up_compiles_every_module_that_has_such_functions() -> None:
    root = Path(__file__).parents[2]
    using = {
        str(path.relative_to(root).with_suffix("")).replace("/", ".").removeprefix("src.")
        for folder in ("src/tidemark", "resources", "assets")
        for path in (root / folder).rglob("*.py")
        if "\n@compiled\n" in path.read_text()
    }
    assert using == set(MODULES)
    assert isinstance(compiled(test_set_up_compiles_every_module_that_has_such_functions), Compiled)
