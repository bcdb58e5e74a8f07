"""Triton kernels, compiled once and launched straight through the CUDA driver.

`JITFunction.run` costs more than a small kernel takes, and Triton's own launcher has to be built by a C compiler. Here
a call is a look-up by the types of its arguments, and one call of the driver: no synchronisation, the current stream,
safe inside CUDA graphs and on any thread. This text needs PyTorch, Triton and nothing else.
"""

import base64
import ctypes
import functools
import hashlib
import json
import operator
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

# A place for binaries that outlives the process, with `get(key)` and `put(key, text)`, where somebody has given one.
# Triton's own cache is always there, and takes seconds to find what it has.
binaries: Any = None

# Kernels for so many alignments of the same types; one that assumes none serves all the others.
MOST_ALIGNMENTS = 4

_POINTERS = {
    torch.bool: "*i1",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
}
_CODES = {"i32": "i", "i64": "q", "fp32": "f", "fp64": "d"}
_STAGED = ("3.6.", "3.9.")  # Versions of Triton whose stages of compilation are known to be called as below.
_OPTIONS = {"enable_fp_fusion": True}  # Triton's versions differ in what they do where nothing is said.
# Without the lines of the text that instructions come from, which are most of a binary.
_ASSEMBLED = {"ptx_options": "-suppress-debug-info"}
_VARIABLES = ("TRITON_", "LLVM_", "MLIR_", "DISABLE_", "NVPTX_", "AMDGCN_", "USE_")


# ---- Compilation ----------------------------------------------------------------------------------------------------


class Binary(NamedTuple):
    """A compiled kernel: its name, its machine code, and what a launch has to know. `scratch` are bytes a program."""

    name: str
    image: bytes
    threads: int
    shared: int
    scratch: int
    descriptors: list[dict[str, Any]]

    def written(self) -> str:
        return json.dumps(self._replace(image=base64.b64encode(zlib.compress(self.image, 1)).decode()))  # type: ignore[arg-type]

    @classmethod
    def read(cls, text: str) -> "Binary":
        name, image, *rest = json.loads(text)
        return cls(name, zlib.decompress(base64.b64decode(image)), *rest)


class Form(NamedTuple):
    """A kernel with all that its binary depends on besides the device: the types of its parameters in order ("=1" for a
    whole number that is taken to be 1, such as the stride of a last axis), which of them are divisible by 16, and
    constants."""

    kernel: Any
    types: tuple[str, ...]
    divisible: tuple[bool, ...]
    constants: tuple[Any, ...]
    warps: int
    stages: int
    registers: int = 0  # The most that a thread has; 0 for as many as it likes.

    def source(self) -> Any:
        names = self.kernel.arg_names
        given: dict[tuple[int], Any] = {(n,): None for n, kind in enumerate(self.types) if kind == "constexpr"}
        given |= {(n,): int(kind[1:]) for n, kind in enumerate(self.types) if kind.startswith("=")}
        given |= {(len(self.types) + n,): value for n, value in enumerate(self.constants)}
        types = ["constexpr" if (n,) in given else kind for n, kind in enumerate((*self.types, *self.constants))]
        divisible = {(n,): [["tt.divisibility", 16]] for n, holds in enumerate(self.divisible) if holds}
        return ASTSource(self.kernel, dict(zip(names, types, strict=True)), given, divisible)

    def key(self, target: Any) -> str:
        """The digest of all that a binary depends on. Triton's own takes in the whole library."""
        library = os.stat(os.path.join(os.path.dirname(triton.__file__), "_C", "libtriton.so"))
        variables = sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES))
        versions = [4, triton.__version__, library.st_size, library.st_mtime_ns, _driver_version(), str(target)]
        asked = [self.types, self.divisible, [f"{type(value)} {value}" for value in self.constants]]
        options = [self.warps, self.stages, self.registers, _OPTIONS, _ASSEMBLED]
        source = getattr(self.kernel, "digest", None) or self.kernel.cache_key
        everything = json.dumps([versions, variables, source, asked, options])
        return hashlib.sha256(everything.encode()).hexdigest()

    def compiled(self, target: Any, own: bool = False) -> Binary:
        """The kernel, compiled: with Triton's own cache, or stage by stage without it."""
        options = {**_OPTIONS, **_ASSEMBLED, "num_warps": self.warps, "num_stages": self.stages}
        options |= {"maxnreg": self.registers} if self.registers else {}
        if own:
            image, about = _staged(self.source(), target, options)
        else:
            found = triton.compile(self.source(), target=target, options=options)
            image, about = found.asm["cubin"], found.metadata._asdict()
        unknown = ("profile_scratch_size", "launch_cooperative_grid", "launch_pdl")
        if about["num_ctas"] != 1 or any(about[name] for name in unknown):
            raise NotImplementedError(f"{about['name']} is a kernel of clusters, profiles or cooperative programs")
        sizes = (32 * about["num_warps"], about["shared"], about["global_scratch_size"])
        return Binary(about["name"], image, *sizes, about["tensordesc_meta"] or [])

    def binary(self, target: Any) -> Binary:
        """The compiled kernel, from where binaries are kept if it is there."""
        if binaries is None:
            return self.compiled(target)
        key = self.key(target)
        kept = binaries.get(key)
        if kept is not None:
            return Binary.read(kept)
        debugged = any(name.startswith("TRITON_KERNEL_") for name in os.environ)
        found = self.compiled(target, own=triton.__version__.startswith(_STAGED) and not debugged)
        binaries.put(key, found.written())
        return found


class _Turn(threading.local):
    """When this thread may read the text of a kernel, and what it says when it has, where several are compiled."""

    before: threading.Event | None = None
    done: threading.Event | None = None


_turn = _Turn()
_PATIENCE = 3.0  # Seconds: another thread may hold what it waits for.


def _staged(source: Any, target: Any, options: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """The machine code of a kernel and what is said about it, as `triton.compile` makes them. That would first hash the
    whole library for the key of its cache, which takes a second or two in each process, and here nobody asks for."""
    backend = make_backend(target)
    chosen = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    about: dict[str, Any] = {"hash": "", "target": target, **chosen.__dict__}
    stages: dict[str, Any] = {}
    backend.add_stages(stages, chosen, source.language)
    how = backend.get_codegen_implementation(chosen), backend.get_module_map()
    if _turn.before is not None:
        _turn.before.wait(_PATIENCE)
    module = source.make_ir(target, chosen, *how, context)
    if _turn.done is not None:
        _turn.done.set()
    for stage in stages.values():
        module = stage(module, about)
    return module, about


# ---- The driver -----------------------------------------------------------------------------------------------------


@functools.cache
def _cuda() -> Any:
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


@functools.cache
def _driver_version() -> int:
    found = ctypes.c_int()
    _check(_cuda().cuDriverGetVersion(ctypes.byref(found)), "cuDriverGetVersion")
    return found.value


def _check(status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        _cuda().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'unknown error').decode()} (CUDA error {status})")


def _enter(device: int) -> None:
    """Make the device's context that of this thread, which PyTorch does only when it calls CUDA itself."""
    context, handle = ctypes.c_void_p(), ctypes.c_int()
    _check(_cuda().cuCtxGetCurrent(ctypes.byref(context)), "cuCtxGetCurrent")
    if not context.value:
        _check(_cuda().cuDeviceGet(ctypes.byref(handle), device), "cuDeviceGet")
        _check(_cuda().cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "cuDevicePrimaryCtxRetain")
        _check(_cuda().cuCtxSetCurrent(context), "cuCtxSetCurrent")


def _loaded(binary: Binary, device: int) -> Any:
    """The handle of a kernel on a device."""
    _enter(device)
    cuda, module, function = _cuda(), ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuModuleLoadData(ctypes.byref(module), binary.image), f"{binary.name} cannot be loaded")
    _check(cuda.cuModuleGetFunction(ctypes.byref(function), module, binary.name.encode()), binary.name)
    if binary.shared > 48 << 10:
        most = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
        if binary.shared > most:
            needs = f"{binary.shared} bytes of shared memory, and the device has {most}"
            raise RuntimeError(f"{binary.name} needs {needs}")
        _check(cuda.cuFuncSetCacheConfig(function, 1), "cuFuncSetCacheConfig")
        _check(cuda.cuFuncSetAttribute(function, 8, binary.shared), "cuFuncSetAttribute")
    return function


# The compiler's numbers for dtypes, where the driver has others.
_DRIVER_DTYPES = {8: 10, 9: 8, 10: 9}


def _encoded(tile: Any, about: dict[str, Any]) -> tuple[Any, ...]:
    """A descriptor as a kernel takes it: the driver's record, the shape and the strides."""
    rank, size, box = len(about["block_size"]), about["elem_size"], about["block_size"]
    if about["fp4_padded"] or about.get("is_im2col"):
        raise NotImplementedError("descriptors of packed numbers and of convolutions are not made here")
    longs, words = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    steps = [size * stride for stride in tile.strides[:-1]]
    record = ctypes.create_string_buffer(192)
    start = -ctypes.addressof(record) % 64
    status = _cuda().cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(record) + start),
        _DRIVER_DTYPES.get(about["elem_type"], about["elem_type"]),
        rank,
        ctypes.c_void_p(tile.base.data_ptr()),
        longs(*reversed(tile.shape)),
        longs(*reversed(steps)),
        words(*reversed(box)),
        words(*[1] * rank),
        0,  # not interleaved
        about["swizzle"],
        2,  # 128 bytes at a time into the second cache
        int(tile.padding == "nan"),
    )
    _check(status, f"a descriptor of shape {tile.shape}, strides {tile.strides} and tiles of {box}")
    return (record.raw[start : start + 128], *tile.shape, *tile.strides)


# ---- Launch ---------------------------------------------------------------------------------------------------------


class Parameters(NamedTuple):
    """The memory that a launch is read from, one for each launch that is under way at the same time: first the driver's
    record of how it is launched, then its parameters, with pointers to either."""

    buffer: Any
    config: Any
    pointers: Any

    @classmethod
    def of(cls, size: int, offsets: Sequence[int]) -> "Parameters":
        buffer = ctypes.create_string_buffer(size)
        place = ctypes.addressof(buffer)
        pointers = (ctypes.c_void_p * len(offsets))(*(place + offset for offset in offsets))
        return cls(buffer, ctypes.c_void_p(place), pointers)


# The record as `struct` writes it: three sizes of the grid, three of a block, shared memory, the stream, no attributes.
_CONFIG, _CONFIG_SIZE = "7I4xQ24x", 64


class Launcher:
    """A kernel on a device, for arguments of some types, whose values come in a certain order."""

    def __init__(self, form: Form, order: Sequence[int], binary: Binary, device: int) -> None:
        self.binary, self.device, self.scratch = binary, device, binary.scratch
        self.function, self.run = _loaded(binary, device), _cuda().cuLaunchKernelEx
        self.records: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        text, offsets = _layout(form, order)
        text, self.offsets = f"={_CONFIG}{text}", [_CONFIG_SIZE + offset for offset in offsets]
        self.pack_into, self.size = struct.Struct(text).pack_into, struct.calcsize(text)
        self.free: list[Parameters] = []

    def packed(self, free: list[Parameters], grid: Sequence[int], stream: int, values: Sequence[Any]) -> Parameters:
        """A launch in memory, of those that are free or of new ones."""
        try:
            parameters = free.pop()
        except IndexError:  # The first, or others are launching it too.
            parameters = Parameters.of(self.size, self.offsets)
        shape = (*(*grid, 1, 1)[:3], self.binary.threads, 1, 1, self.binary.shared)
        self.pack_into(parameters.buffer, 0, *shape, stream, *values)
        return parameters

    def __call__(self, grid: Sequence[int], values: list[Any], tiles: Sequence[Any]) -> None:
        for tile, about in zip(tiles, self.binary.descriptors, strict=True) if tiles else ():
            values += self.record(tile, about)
        address = 0
        if self.scratch:  # It may be used again by what this stream launches next.
            size = self.scratch * functools.reduce(operator.mul, grid)
            scratch = torch.empty(size, dtype=torch.uint8, device=self.device)
            address = scratch.data_ptr()
        stream = torch._C._cuda_getCurrentRawStream(self.device)
        parameters = self.packed(self.free, grid, stream, [*values, address, 0])
        status = self.run(parameters.config, self.function, parameters.pointers, None)
        if status:
            self.retry(status, parameters.config, parameters.pointers)
        self.free.append(parameters)

    def retry(self, status: int, config: Any, pointers: Any) -> None:
        """Launch what was refused once more, where this thread had no context yet."""
        if status == 201:
            _enter(self.device)
            status = self.run(config, self.function, pointers, None)
        if status:
            grid = struct.unpack("=3I", ctypes.string_at(config, 12))
            _check(status, f"{self.binary.name} over {grid} programs")

    def record(self, tile: Any, about: dict[str, Any]) -> tuple[Any, ...]:
        """A descriptor as the kernel takes it. Memory is used again and again, and so is its record."""
        key = (tile.base.data_ptr(), about["swizzle"], *tile.shape, *tile.strides, *about["block_size"], tile.padding)
        found = self.records.get(key)
        if found is None:
            if len(self.records) >= 64:
                self.records = {}
            found = self.records[key] = _encoded(tile, about)
        return found


def _layout(form: Form, order: Sequence[int]) -> tuple[str, list[int]]:
    """The parameters in memory, in the order that `struct` writes them in, and the offset of each in their own."""
    types = {n: form.types[n] for n in order} | {len(form.types): "*scratch", len(form.types) + 1: "*profile"}
    text, end = "", 0
    offsets: dict[int, list[int]] = {}
    for place, kind in types.items():
        for code, size, alignment in _fields(kind):
            gap = -end % alignment
            text += f"{gap}x{code}" if gap else code
            if not kind.startswith("="):  # It is written like the others, and nobody reads it.
                offsets.setdefault(place, []).append(end + gap)
            end += gap + size
    return text, [offset for place in sorted(offsets) for offset in offsets[place]]


def _fields(kind: str) -> list[tuple[str, int, int]]:
    """A parameter's codes for `struct`, each with its size and alignment."""
    if kind.startswith("*"):
        return [("Q", 8, 8)]
    if kind.startswith("tensordesc"):
        rank = kind.count(",") + 1
        return [("128s", 128, 64), *[("i", 4, 4)] * rank, *[("q", 8, 8)] * rank]
    code = "i" if kind.startswith("=") else _CODES[kind]
    return [(code, struct.calcsize("=" + code), struct.calcsize("=" + code))]


class Family:
    """A kernel with its constants and the Python types of its arguments: its launchers by all else they depend on,
    which is a device, what is divisible by 16, which whole numbers are wide, dtypes, and tiles of descriptors."""

    def __init__(self, kernel: Any, constants: tuple[Any, ...], how: tuple[int, ...], types: Sequence[type]) -> None:
        if len(types) + len(constants) != len(kernel.params):
            takes = f"{kernel.__name__} takes {len(kernel.params)} arguments and constants"
            raise TypeError(f"{takes}, not {len(types)} and {len(constants)}")
        self.kernel, self.constants, self.how = kernel, constants, how
        self.launchers: dict[tuple[Any, ...], Launcher] = {}
        self.lock = threading.Lock()
        places = range(len(types))
        self.tensors = [n for n in places if issubclass(types[n], Tensor)]
        self.wholes = [n for n in places if issubclass(types[n], int)]
        self.reals = [n for n in places if issubclass(types[n], float)]
        plain = {*self.tensors, *self.wholes, *self.reals}
        self.tiles = [n for n in places if n not in plain and types[n] is not type(None)]
        self.order = (*self.tensors, *self.wholes, *self.reals, *self.tiles)
        fixed = [p.do_not_specialize or p.do_not_specialize_on_alignment for p in kernel.params]
        self.aligned = [n for n in self.tensors if not fixed[n]]
        self.divisible = [n for n in self.wholes if not fixed[n]]
        self.exact = [kernel.params[n].name.endswith("_step") for n in self.divisible]
        self.divisors: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.look = self._looking(len(types))

    @property
    def effort(self) -> tuple[bool, int]:
        """The time to compile, for comparison alone: kernels that load ahead are those of matrix products."""
        return self.how[1] > 1, len(self.kernel.fn.__code__.co_code)

    def read(self, arguments: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
        """The key of a launcher, and the values that it takes but for descriptors."""
        device, same, low, high, steps, values, dtypes = self.look(*arguments)
        if not same or device < 0:
            problem = "are not on one" if same else "are on several devices"
            raise ValueError(f"{self.kernel.__name__} runs on a GPU, and its tensors {problem}")
        aligned = None if not low & 15 else tuple([not arguments[n].data_ptr() & 15 for n in self.aligned])
        divisors = self.divisors.get(steps)
        if divisors is None:
            divisors = self._divisors(steps)
        wide = None
        if not 0 <= high <= _LARGEST:
            wide = tuple([not ~_LARGEST <= arguments[n] <= _LARGEST for n in self.wholes])
        blocks = tuple([tuple(arguments[n].block_shape) for n in self.tiles]) if self.tiles else ()
        return (device, aligned, divisors, wide, dtypes, blocks), values

    def _divisors(self, steps: tuple[int, ...]) -> tuple[int, ...]:
        """For each whole number that may be assumed to be divisible 16 if it is, and 1 where it is 1; else 0. A step
        from row to row is less than 0: the number itself is assumed."""
        if len(self.divisors) >= 256:
            self.divisors = {}
        kinds = [1 if step == 1 else 0 if step & 15 else 16 for step in steps]
        known = [-step if exact else kind for step, kind, exact in zip(steps, kinds, self.exact, strict=True)]
        self.divisors[steps] = found = tuple(known)
        return found

    def _looking(self, count: int) -> Any:
        """A function of the arguments, written out for these since it is run at each launch: their device, whether that
        is the same for all, bits of addresses, bits of whole numbers, those that may be divisible, values, dtypes."""
        owners = [f"a{n}" for n in self.tensors] + [f"a{n}.base" for n in self.tiles]
        if not owners:
            raise TypeError(f"{self.kernel.__name__} is given no tensor, and so no device")
        bits, steps = [f"p{n}" for n in self.aligned], [f"a{n}, " for n in self.divisible]
        values = [f"p{n}" for n in self.tensors] + [f"a{n}" for n in (*self.wholes, *self.reals)]
        lines = [
            f"def look({', '.join(f'a{n}' for n in range(count))}):",
            *(f"    p{n} = a{n}.data_ptr()" for n in self.tensors),
            f"    device = {owners[0]}.get_device()",
            f"    same = {' == '.join(['device', *(f'{owner}.get_device()' for owner in owners[1:])])}",
            f"    low, high = {' | '.join(bits) or 0}, {' | '.join(f'a{n}' for n in self.wholes) or 0}",
            f"    values, dtypes = [{', '.join(values)}], ({', '.join(f'{owner}.dtype' for owner in owners)},)",
            f"    return device, {'same' if owners[1:] else True}, low, high, ({''.join(steps)}), values, dtypes",
        ]
        scope: dict[str, Any] = {}
        exec("\n".join(lines), scope)
        return scope["look"]

    def form(self, key: tuple[Any, ...]) -> Form:
        _, aligned, divisors, wide, dtypes, blocks = key
        types = ["constexpr"] * (len(self.kernel.params) - len(self.constants))
        for n, dtype in zip(self.tensors, dtypes, strict=False):
            types[n] = _pointer(dtype)
        for n, dtype, block in zip(self.tiles, dtypes[len(self.tensors) :], blocks, strict=True):
            types[n] = f"tensordesc<{_pointer(dtype)[1:]}{list(block)}>"
        for at, n in enumerate(self.wholes):
            types[n] = "i64" if wide and wide[at] else "i32"
        for n in self.reals:
            types[n] = "fp32"
        for n, divisor in zip(self.divisible, divisors, strict=True):
            types[n] = "=1" if divisor == 1 else f"={-divisor}" if divisor < 0 else types[n]
        names = [parameter.annotation_type for parameter in self.kernel.params]
        types = [kind if kind.startswith("=") else name or kind for name, kind in zip(names, types, strict=False)]
        sure = {n for at, n in enumerate(self.aligned) if aligned is None or aligned[at]}
        sure |= {n for at, n in enumerate(self.divisible) if divisors[at] == 16}
        divisible = tuple(n in sure for n in range(len(types)))
        return Form(self.kernel, tuple(types), divisible, self.constants, *self.how)

    def add(self, key: tuple[Any, ...]) -> Launcher:
        """Compile, or find, the kernel for arguments like these."""
        with self.lock:
            if key not in self.launchers:
                general = self._assuming_less(key)
                alike = sum(self._assuming_less(known) == general for known in self.launchers)
                if alike < MOST_ALIGNMENTS:
                    self.launchers[key] = self._made(key)
                else:
                    if general not in self.launchers:
                        self.launchers[general] = self._made(general)
                    self.launchers[key] = self.launchers[general]
            return self.launchers[key]

    def _assuming_less(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key of a kernel that assumes nothing to be divisible by 16, and no steps."""
        device, _, divisors, *rest = key
        return device, (False,) * len(self.aligned), tuple([int(divisor == 1) for divisor in divisors]), *rest

    def _made(self, key: tuple[Any, ...]) -> Launcher:
        form, (major, minor) = self.form(key), torch.cuda.get_device_capability(key[0])
        binary = form.binary(GPUTarget("cuda", 10 * major + minor, 32))
        with torch.cuda.device(key[0]):
            return Launcher(form, self.order, binary, key[0])


def _pointer(dtype: torch.dtype) -> str:
    """The compiler's name for the type of a tensor's address."""
    if dtype not in _POINTERS:
        raise TypeError(f"a kernel takes no tensor of {dtype}")
    return _POINTERS[dtype]


# A whole number beyond this has 64 bits: what a kernel adds to it does not overflow.
_LARGEST = 0x0FFFFFFF
_families: dict[tuple[Any, ...], Family] = {}


def _family(
    kernel: Any, arguments: Sequence[Any], constants: tuple[Any, ...], warps: int, stages: int, registers: int = 0
) -> Family:
    types, how = tuple(map(type, arguments)), (warps, stages, registers)
    name = (id(kernel), how, constants, *map(type, constants), *types)
    family = _families.get(name)
    if family is None:
        family = _families.setdefault(name, Family(kernel, constants, how, types))
    return family


def compile_together(launches: Sequence[tuple[Any, ...]]) -> None:
    """Compile what these launches lack, side by side: one after the other, a first call would wait for their sum.

    Triton reads texts in Python, one at a time, and compiles them outside of it: what takes longest is read first.
    """
    missing: dict[Family, dict[tuple[Any, ...], None]] = {}
    for kernel, grid, arguments, *how in launches:
        if 0 not in grid and isinstance(kernel, JITFunction) and torch.version.cuda is not None:
            family = _family(kernel, arguments, *how)
            key = family.read(arguments)[0]
            if key not in family.launchers:
                missing.setdefault(family, {})[key] = None
    if len(missing) > 1:
        jobs = sorted(missing.items(), key=lambda job: job[0].effort, reverse=True)
        read = [threading.Event() for _ in jobs]
        with ThreadPoolExecutor(len(jobs)) as pool:
            for _ in pool.map(_compile_in_turn, jobs, [None, *read], read):
                pass


def _compile_in_turn(job: tuple[Family, Iterable[Any]], before: threading.Event | None, done: threading.Event) -> None:
    """Compile kernels, whose texts are read when those before them were."""
    family, keys = job
    _turn.before, _turn.done = before, done
    try:
        for key in keys:
            family.add(key)
    finally:
        done.set()


def launch(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    constants: tuple[Any, ...] = (),
    warps: int = 4,
    stages: int = 2,
    registers: int = 0,
) -> "Repeat | None":
    """Run `kernel` for each point of a grid of up to three axes, with its arguments and then its constants, and with at
    most so many registers for a thread, unless that is 0.

    Arguments are tensors, whole numbers, reals (float32), descriptors, or None for none. A whole number is taken to be
    1 or divisible by 16 where it is, and so is the address of a tensor; one that is called `…_step` is a constant, for
    some values of it. What `do_not_specialize` names changes from call to call without another compilation. Over a grid
    without points nothing is done. The answer can be launched again, where it does not depend on more than layouts and
    numbers.
    """
    if 0 in grid:
        return None
    if not isinstance(kernel, JITFunction):  # Triton's interpreter
        kernel[tuple(grid)](*arguments, *constants)
        return None
    if torch.version.cuda is None:
        kernel[tuple(grid)](*arguments, *constants, num_warps=warps, num_stages=stages, **_OPTIONS)
        return None
    family = _family(kernel, arguments, constants, warps, stages, registers)
    key, values = family.read(arguments)
    launcher = family.launchers.get(key) or family.add(key)
    tiles = [arguments[n] for n in family.tiles]
    rest = values[len(family.tensors) :]
    if key[0] == torch._C._cuda_getDevice():
        launcher(grid, values, tiles)
    else:
        with torch.cuda.device(key[0]):
            launcher(grid, values, tiles)
    if tiles or launcher.scratch or key[1] is not None:
        return None
    return Repeat(launcher, tuple(grid), len(family.tensors), rest)


class Repeat(NamedTuple):
    """A launch with all but its tensors, of which there are so many."""

    launcher: Launcher
    grid: Sequence[int]
    tensors: int
    rest: Sequence[Any]

    def parameters(self, stream: int, places: Sequence[int]) -> Parameters:
        """Memory of a launch on a stream, which has the addresses of its tensors read from these places."""
        found = self.launcher.packed([], self.grid, stream, (*[0] * self.tensors, *self.rest, 0, 0))
        first = found.config.value + _CONFIG_SIZE  # Tensors come first in memory, and anywhere among the parameters.
        for n, place in enumerate(found.pointers):
            if place < first + 8 * self.tensors:
                found.pointers[n] = places[(place - first) // 8]
        return found
