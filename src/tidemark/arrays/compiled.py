"""How a loop over rows is compiled, cached and called.

Belongs here: the one way in which this project compiles a function, and nothing that computes. A loop is compiled when
NumPy and Arrow have no single call for it and every row is looked at: texts, hashes, tables of slots. Such a function
takes arrays and numbers, declares their types by its annotations, returns a number or nothing, allocates nothing
and raises nothing. It is plain Python too: tests may call it as that (`function.plain`).

numba translates it once; the machine code is cached beside the module (`__pycache__`) under a name made from its inputs
and the processor (`code_files.py` checks every byte of it). A process that finds it there needs neither numba nor a
second: loading takes milliseconds, while importing numba takes most of a second. While such a function runs, other
threads run too.
"""

import ctypes
import hashlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from tidemark.arrays.code_files import Code, read_code, write_code

F = TypeVar("F", bound=Callable[..., Any])

# Modules with compiled functions: set-up compiles them, so that no later call waits for it.
MODULES = (
    *(f"tidemark.arrays.{name}" for name in ("distinct", "hashing")),
    *(f"tidemark.counts.warm.{name}" for name in ("buckets", "cells", "texts")),
    *(f"tidemark.vectors.{name}" for name in ("checksums", "index.kernels", "loops", "places")),
    *(f"tidemark.verdicts.{name}" for name in ("delta_hashes", "digests", "identities")),
)

_lock = threading.RLock()
_engines: list[Any] = []  # own the machine code; never released
# The functions that machine code may call: a loop that clears or copies becomes one of the first three; the last, which
# frees memory that numba has allocated, is in all of it and is never reached. If the engine does not know one of them,
# it silently leaves every call unresolved.
_CALLED = {"memset": "memset", "memcpy": "memcpy", "memmove": "memmove", "NRT_MemInfo_call_dtor": "abort"}
_DIMENSIONS = {1: "without gaps", 2: "of two dimensions without gaps"}


class Number(NamedTuple):
    """A number that is passed or returned: its type in numba and in C."""

    name: str
    in_c: Any


class Array(NamedTuple):
    """An array that is passed: its element type and its number of dimensions."""

    dtype: np.dtype[Any]
    dimensions: int


_SCALARS: dict[Any, Number] = {
    int: Number("int64", ctypes.c_int64),
    float: Number("float64", ctypes.c_double),
    bool: Number("boolean", ctypes.c_bool),
    np.uint64: Number("uint64", ctypes.c_uint64),
}


def compiled(function: F) -> F:
    """The function as machine code, from its first call on; it runs without Python's lock."""
    return cast("F", Compiled(cast("FunctionType", function)))


def inlined(function: F) -> F:
    """A part of compiled functions, and of nothing else: it may take and return whatever these can handle."""
    return cast("F", Compiled(cast("FunctionType", function), is_part=True))


class Compiled:
    """A function that is compiled, or loaded, when it is first called."""

    def __init__(self, function: FunctionType, *, is_part: bool = False) -> None:
        self.plain, self.is_part = function, is_part
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self._dispatcher: Any = None
        self._entry: Any = None
        self._parameters: list[Number | Array] = []
        self._result: Number | None = None

    def __call__(self, *arguments: Any) -> Any:
        entry = self._entry or self.load()
        values: list[Any] = []
        for expected, argument in zip(self._parameters, arguments, strict=True):
            if isinstance(expected, Number):
                values.append(argument)
                continue
            # Otherwise foreign memory would be read, or overwritten.
            dtype, dimensions = expected
            if argument.dtype != dtype or argument.ndim != dimensions or not argument.flags.c_contiguous:
                how = _DIMENSIONS[dimensions]
                raise TypeError(f"{self.__name__} takes an array of {dtype} {how}, not {argument.dtype}.")
            # NumPy gives an array's address, too, but in three microseconds; Arrow takes a quarter of one.
            values += (pa.py_buffer(argument).address, *argument.shape)
        result = self._result.in_c() if self._result else ctypes.c_int64()
        trouble = ctypes.c_void_p()
        if entry(ctypes.byref(result), ctypes.byref(trouble), *values):
            raise SystemError(f"{self.__name__} raised, which compiled functions must not.")
        return result.value if self._result else None

    def load(self) -> Any:
        """Load it; compile it if it is not in the cache."""
        with _lock:
            if self._entry is None:
                self._parameters, self._result = self._signature()
                code = read_code(self._file(), self._made_from(), self._source()) or self._compile()
                types = [part for parameter in self._parameters for part in _passed(parameter)]
                pointer = ctypes.c_void_p
                self._entry = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, *types)(_address(code))
        return self._entry

    def _signature(self) -> tuple[list[Number | Array], Number | None]:
        hints = get_type_hints(self.plain)
        result = hints.pop("return")
        given = _SCALARS.get(result)
        if given is None and result is not type(None):
            raise TypeError(f"{self.__name__} returns {result}, and only a number can be returned.")
        return [_parameter(hint, self.__name__) for hint in hints.values()], given

    def _made_from(self) -> str:
        """All inputs of the machine code: if one changes, so does the code."""
        return "\n".join([version("numba"), version("llvmlite"), sys.version, *_processor(), *self._parts()])

    def _file(self) -> Path:
        source = self._source()
        key = hashlib.sha256(self._made_from().encode()).hexdigest()[:20]
        return source.parent / "__pycache__" / f"{source.stem}.{self.__name__}.{key}.o"

    def _source(self) -> Path:
        return Path(self.plain.__code__.co_filename)

    def _parts(self) -> Iterator[str]:
        """The inputs within this project: its own steps, and those of the functions it calls."""
        code = self.plain.__code__
        yield f"{code.co_name} {code.co_code.hex()} {code.co_consts!r} {code.co_names!r}"
        yield repr(None if self.is_part else self._signature())
        for name in code.co_names:
            found = self.plain.__globals__.get(name)
            if isinstance(found, Compiled):
                yield from found._parts()  # noqa: SLF001 - of another of its kind
            elif isinstance(found, int | float | np.generic):
                yield f"{name}={found!r}"

    def _compile(self) -> Code:
        """Have numba translate it behind an entry that takes addresses and lengths."""
        import numba
        from numba.core import compiler, registry

        names, types, calls = [], [], []
        for place, parameter in enumerate(self._parameters):
            names.append(f"a{place}")
            if isinstance(parameter, Number):
                types.append(getattr(numba.types, parameter.name))
                calls.append(f"a{place}")
                continue
            lengths = [f"n{place}_{dimension}" for dimension in range(parameter.dimensions)]
            names += lengths
            types += [numba.types.CPointer(numba.from_dtype(parameter.dtype)), *[numba.types.int64] * len(lengths)]
            calls.append(f"carray(a{place}, ({', '.join(lengths)},))")
        space: dict[str, Any] = {"carray": numba.carray, "function": self.dispatcher()}
        exec(f"def entry({', '.join(names)}):\n    return function({', '.join(calls)})", space)  # noqa: S102
        target = registry.cpu_target
        target.typing_context.refresh()
        target.target_context.refresh()
        flags = compiler.Flags()
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.nrt = True
        flags.error_model = "numpy"
        gives = getattr(numba.types, self._result.name) if self._result else numba.types.void
        made = compiler.compile_extra(
            target.typing_context, target.target_context, space["entry"], types, gives, flags, {}
        )
        code = Code(made.fndesc.llvm_func_name, made.library._get_compiled_object())  # noqa: SLF001 - as its own cache
        write_code(self._file(), self._made_from(), code, f"{self._source().stem}.{self.__name__}.*")
        return code

    def dispatcher(self) -> Any:
        """Its numba function, for functions that call it."""
        import numba

        if self._dispatcher is None:
            space = dict(self.plain.__globals__)
            for name in self.plain.__code__.co_names:
                if isinstance(called := space.get(name), Compiled):
                    space[name] = called.dispatcher()
            inner = FunctionType(self.plain.__code__, space, self.__name__)
            self._dispatcher = numba.njit(error_model="numpy")(inner)
        return self._dispatcher


def _parameter(hint: Any, function: str) -> Number | Array:
    """The type of an annotation. An array has one dimension, unless the annotation gives a number."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is np.ndarray:
        shape, dtype = get_args(hint)
        return Array(np.dtype(get_args(dtype)[0]), 2 if len(get_args(shape)) == 2 and ... not in get_args(shape) else 1)
    raise TypeError(f"{function} is annotated with {hint}, and only numbers and arrays can be compiled.")


def _passed(parameter: Number | Array) -> list[Any]:
    if isinstance(parameter, Number):
        return [parameter.in_c]
    return [ctypes.c_void_p, *[ctypes.c_int64] * parameter.dimensions]


def _processor() -> tuple[str, str]:
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _address(code: Code) -> int:
    """Load machine code, and return the address of its function."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for called, here in _CALLED.items():
        llvm.add_symbol(called, ctypes.cast(getattr(ctypes.CDLL(None), here), ctypes.c_void_p).value)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.code))
    engine.finalize_object()
    _engines.append(engine)
    address = int(engine.get_function_address(code.entry))
    if not address:
        raise SystemError(f"the machine code has no entry {code.entry}.")  # a call of address 0 would end the process
    return address


def load_loops() -> None:
    """Load every compiled function, so that none has to be compiled in the middle of something."""
    for name in MODULES:
        for found in vars(importlib.import_module(name)).values():
            if isinstance(found, Compiled) and found.__module__ == name and not found.is_part:
                found.load()


if __name__ == "__main__":
    # Under its own name: as `__main__` it would be another module, with functions of its own.
    importlib.import_module("tidemark.arrays.compiled").load_loops()
