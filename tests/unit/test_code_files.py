"""Machine code that is not exactly what was written is never run: it is made again, and the file replaced."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.arrays.code_files import SIZE_LIMIT, Code, pack, read_code, unpack, write_code

SOURCE = """
import numpy as np
import numpy.typing as npt
from tidemark.arrays.compiled import compiled

@compiled
def total(numbers: npt.NDArray[np.int64]) -> int:
    found = 0
    for row in range(len(numbers)):
        found += numbers[row] * 3
    return found
"""
# In a process of its own, because damaged machine code would end the one that runs it.
CALL = """
import sys; sys.path.insert(0, sys.argv[1])
import loops, numpy as np
print(loops.total(np.arange(5)), "numba" in sys.modules)
"""
CODE = Code("entry", bytes(range(256)) * 4)


def call(folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", CALL, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loops.py").write_text(SOURCE)
    assert call(tmp_path) == ["30", "True"]
    return tmp_path


def kept(folder: Path) -> Path:
    (found,) = (folder / "__pycache__").glob("loops.total.*")
    return found


def cut(length: float) -> Callable[[Path], None]:
    return lambda file: os.truncate(file, int(length * file.stat().st_size))


def flip(place: float) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[int(place * len(content))] ^= 0x10
        file.write_bytes(content)

    return damage


def replace_by_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_by_a_link(file: Path) -> None:
    file.rename(file.parent / "elsewhere")
    file.symlink_to("elsewhere")


def grow_without_end(file: Path) -> None:
    os.truncate(file, 1 << 40)


DAMAGES = {
    **{f"cut at {length}": cut(length) for length in (0, 0.01, 0.3, 0.5, 0.9, 0.999)},
    **{f"flipped at {place}": flip(place) for place in (0, 0.02, 0.1, 0.5, 0.999)},
    "of the form before": lambda file: file.write_bytes(b"entry\n\x7fELF"),
    "a pipe": replace_by_a_pipe,
    "a link": replace_by_a_link,
    "a terabyte": grow_without_end,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_compiled_again_and_replaced(folder: Path, damage: Callable[[Path], None]) -> None:
    whole = kept(folder).read_bytes()
    damage(kept(folder))
    assert call(folder) == ["30", "True"]
    assert kept(folder).read_bytes() == whole
    assert call(folder) == ["30", "False"]


def test_what_a_killed_process_left_is_removed_by_the_next_that_compiles(folder: Path) -> None:
    left = kept(folder).with_suffix(".half.tmp")
    left.write_bytes(b"half")
    for file in (folder / "__pycache__").glob("*.o"):
        file.unlink()
    call(folder)
    assert not left.exists()


def test_processes_that_compile_at_once_all_get_it_right(folder: Path) -> None:
    kept(folder).unlink()
    started = [
        subprocess.Popen([sys.executable, "-c", CALL, str(folder)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [one.communicate()[0].split()[0] for one in started] == ["30"] * 3
    assert [one.returncode for one in started] == [0] * 3
    assert call(folder) == ["30", "False"]


def test_where_nothing_can_be_kept_it_is_compiled_each_time(folder: Path) -> None:
    """As on a disk that may not be written: nobody can make a folder under a file, not even root."""
    kept(folder).unlink()
    cache = folder / "__pycache__"
    for file in cache.iterdir():
        file.unlink()
    cache.rmdir()
    cache.write_text("no folder")
    assert call(folder) == call(folder) == ["30", "True"]


def test_a_full_disk_leaves_the_old_file_and_no_half_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "a.b.old.o"
    old.write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    write_code(tmp_path / "a.b.new.o", "inputs", CODE, "a.b.*")
    assert list(tmp_path.iterdir()) == [old]


def test_the_file_of_a_stranger_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, path = tmp_path / "source.py", tmp_path / "a.b.o"
    source.touch()
    write_code(path, "inputs", CODE, "a.b.*")
    assert read_code(path, "inputs", source) == CODE
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12_345, -1)
    assert read_code(path, "inputs", source) is None
    os.chown(source, 12_345, -1)
    assert read_code(path, "inputs", source) == CODE, "the owner of the source may put the code beside it"


def test_a_file_that_grows_while_it_is_read_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "a.b.o"
    path.write_bytes(pack("inputs", CODE) + bytes(SIZE_LIMIT))
    assert read_code(path, "inputs", path) is None


@given(st.text(), st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=9), st.binary())
def test_what_was_packed_is_unpacked_for_the_same_inputs_only(made_from: str, entry: str, code: bytes) -> None:
    packed = pack(made_from, Code(entry, code))
    assert unpack(made_from, packed) == Code(entry, code)
    assert unpack(made_from + "x", packed) is None


@given(st.data())
def test_no_damage_passes_the_check(data: st.DataObject) -> None:
    packed = pack("inputs", CODE)
    at = data.draw(st.integers(0, len(packed) - 1))
    assert unpack("inputs", packed[:at]) is None
    bits = data.draw(st.integers(1, 255))
    assert unpack("inputs", packed[:at] + bytes([packed[at] ^ bits]) + packed[at + 1 :]) is None
    assert unpack("inputs", packed + data.draw(st.binary(min_size=1))) is None
