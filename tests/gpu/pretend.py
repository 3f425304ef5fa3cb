"""A GPU that is not there: tensors that say `cuda:0` or `mps:0`, hold real values in RAM, and are
counted.

    with pretend_gpu() as gpu:
        runner = ModelRunner(on_gpu(model), special)
        ledger = gpu.new_ledger()
        runner.predict(rows)

Every operation on such tensors is noted with the line of the package that asked for it: kernels,
copies in either direction, and where the host waits. What the device refuses is refused here:
tensors of two devices in one operation, and on MPS float64, operations without a kernel there,
copies from memory that may be gone before they are done, and attention over strided tensors, which
gave wrong values there.
"""

import ctypes
import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest import mock

import torch
import torchgen
import yaml
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.gpu.ledger import Copy, Kernel, Ledger, cost_of, size_of
from tests.support import require

aten = torch.ops.aten
Kind = Literal["cuda", "mps"]

#: Results whose shape or value depends on data: the host has to wait for the device.
DATA_DEPENDENT = {
    aten._local_scalar_dense,
    aten._unique2,
    aten.bincount,
    aten.equal,
    aten.is_nonzero,
    aten.masked_select,
    aten.nonzero,
    aten.unique_consecutive,
    aten.unique_dim,
}
#: Operations without a kernel: views, allocations, and questions about metadata.
FREE = {
    aten._fused_sdp_choice,
    aten._reshape_alias,
    aten._unsafe_view,
    aten.alias,
    aten.as_strided,
    aten.broadcast_to,
    aten.detach,
    aten.detach_,
    aten.diagonal,
    aten.empty,
    aten.empty_like,
    aten.empty_strided,
    aten.expand,
    aten.is_pinned,
    aten.is_same_size,
    aten.lift_fresh,
    aten.narrow,
    aten.new_empty,
    aten.new_empty_strided,
    aten.numel,
    aten.permute,
    aten.reshape,
    aten.resize_,
    aten.select,
    aten.set_,
    aten.slice,
    aten.split,
    aten.split_with_sizes,
    aten.squeeze,
    aten.t,
    aten.transpose,
    aten.unbind,
    aten.unfold,
    aten.unsqueeze,
    aten.view,
    aten.view_as_real,
}
#: Composite operations that a GPU has one kernel for all the same.
WHOLE = {aten._fused_rms_norm, aten.scaled_dot_product_attention}
#: Their indices may lie on the host: CUDA copies them, and waits for that.
TAKES_HOST_INDICES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
PAGE = 256  # FlashAttention 2 takes pages of a multiple of so many positions


class OnGPU(torch.Tensor):
    """Says that it is on the device; its values are in `held`."""

    held: torch.Tensor
    values: torch.Tensor  # what was copied to the device, where only shapes are held

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> "OnGPU":
        assert PretendGPU.active is not None
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            real.size(),
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            layout=real.layout,
            device=PretendGPU.active.device,
            requires_grad=False,
        )
        made.held = made.values = real
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnGPU({self.held!r})"

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"cannot convert a {self.device.type} tensor to numpy")
        return self.cpu().numpy()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} on a tensor of a GPU that is gone")


class PretendGPU(TorchDispatchMode):
    """While it is entered, its ledger notes what tensors on the device are used for."""

    active: "PretendGPU | None" = None

    def __init__(self, kind: Kind, package: str = "rho_eos") -> None:
        super().__init__()
        self.device = torch.device(kind, 0)
        self.package = f"/{package}/"
        self.ledger = Ledger()
        self.largest: float = float("inf")  # bytes of an allocation for which there is room
        self.shapes_only = False  # nothing is computed: all that comes back is zeros
        self.any_precision = False  # whether the varlen kernel takes float32, as none does

    def new_ledger(self) -> Ledger:
        self.ledger = Ledger()
        return self.ledger

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        ours = any(isinstance(x, OnGPU) for x in leaves)
        places = [kwargs.get("device"), *(x for x in args if isinstance(x, torch.device))]
        if not ours and not any(map(self._is_here, places)):
            return func(*args, **kwargs)
        if str(packet) == "torch_attn._varlen_attn":
            return self._varlen(*args)
        if packet not in WHOLE and _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        self._note_types(func, leaves)
        if packet is aten._to_copy or packet is aten.copy_:
            return self._copy(func, args, kwargs)
        self._check_devices(func, leaves, ours)
        if packet in DATA_DEPENDENT or _picks_by_flags(packet, args):
            self.ledger.waits[str(packet), self._line()] += 1
        if packet is aten.scaled_dot_product_attention:
            self._check_attention(args)
        if packet is aten._int_mm:
            _check_product_of_bytes(*args)
        result = self._run(func, args, kwargs)
        if packet not in FREE and not _nothing_to_do(packet, args, result):
            self._note(str(packet), *cost_of(packet, args, kwargs, result))
        return result

    def _is_here(self, device: Any) -> bool:
        return device is not None and torch.device(device).type == self.device.type

    def _line(self) -> str:
        """The innermost line of the package on the stack."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if self.package in name:
                return f"{name.split(self.package)[-1]}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return "elsewhere"

    def _note(self, name: str, moved: int, flops: int) -> None:
        kernel = Kernel(name.removeprefix("aten."), self._line(), moved, flops)
        self.ledger.kernels.append(kernel)

    def _note_types(self, func: Any, leaves: list[torch.Tensor]) -> None:
        self.ledger.operations.add(func)
        self.ledger.dtypes |= {leaf.dtype for leaf in leaves}
        if self.device.type == "mps":
            if any(leaf.dtype == torch.float64 for leaf in leaves):
                raise TypeError(f"{func}: MPS has no float64, at {self._line()}")
            if not has_mps_kernel(func.name()):
                raise NotImplementedError(f"{func} has no kernel on MPS, at {self._line()}")

    def _check_devices(self, func: Any, leaves: list[torch.Tensor], ours: bool) -> None:
        strangers = [x for x in leaves if ours and not isinstance(x, OnGPU) and x.dim() > 0]
        if not strangers:
            return
        if func.overloadpacket not in TAKES_HOST_INDICES:
            raise RuntimeError(
                f"{func}: expected all tensors to be on the same device, but found {self.device} "
                f"and cpu, at {self._line()}"
            )
        self.ledger.to_device += [Copy(self._line(), size_of(x), True) for x in strangers]

    def _check_attention(self, args: Any) -> None:
        if self.device.type == "mps" and not all(x.is_contiguous() for x in args[:3]):
            raise RuntimeError(f"attention over strided tensors, at {self._line()}")

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
        if "device" in kwargs:
            kwargs["device"] = torch.device("meta" if self.shapes_only else "cpu")
        if func.overloadpacket is aten.histc:  # a CPU has it for floats only
            args = (OnGPU(args[0].held.float()), *args[1:])
        result = func(*tree_map(_real, args), **tree_map(_real, kwargs))
        written = _written(func, args, kwargs)
        if written:  # in place, or out=: what was given comes back
            return written[0] if len(written) == 1 else written
        if func.overloadpacket in (aten._local_scalar_dense, aten.equal, aten.is_nonzero):
            return result
        views = any(a.alias_info is not None for a in func._schema.arguments)
        if views and isinstance(args[0], OnGPU):
            with torch.inference_mode(args[0].is_inference()):  # a view is what its base is
                return tree_map(_wrapped, result)
        if size_of(result) > self.largest:
            raise torch.OutOfMemoryError(f"{self.device} out of memory: {size_of(result)} bytes")
        return tree_map(_wrapped, result)

    def _copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        in_place = func.overloadpacket is aten.copy_
        source = args[1] if in_place else args[0]
        non_blocking = kwargs.get("non_blocking", in_place and len(args) > 2 and args[2])
        if in_place:
            here = isinstance(args[0], OnGPU)
        elif kwargs.get("device") is None:
            here = isinstance(source, OnGPU)
        else:
            here = self._is_here(kwargs["device"])
        if not source.numel():
            pass  # no copy, no kernel, no wait
        elif here and not isinstance(source, OnGPU):
            if non_blocking and self.device.type == "mps":
                raise RuntimeError(f"a copy that outlives what it is made from, at {self._line()}")
            # cudaMemcpyAsync and, unless non_blocking, cudaStreamSynchronize.
            self.ledger.to_device.append(Copy(self._line(), size_of(source), not non_blocking))
        elif not here:
            self.ledger.to_host.append(Copy(self._line(), size_of(source), True))
        else:
            self._note(str(func.overloadpacket), 2 * size_of(source), 0)
        if "device" in kwargs:
            shape = self.shapes_only and isinstance(source, OnGPU)
            kwargs = {**kwargs, "device": torch.device("meta" if shape else "cpu")}
        if self.shapes_only and in_place:
            return args[0]
        if self.shapes_only and not here:
            return torch.zeros(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        result = func(*tree_map(_real, args), **kwargs)
        if in_place:
            return args[0]
        if not here:
            return result
        there = OnGPU(result.to("meta") if self.shapes_only else result)
        there.values = result
        return there

    def _varlen(self, *given: Any) -> Any:
        """Span by span; what the kernel and its documentation demand is checked."""
        query, key, value, cu_q, cu_k, max_q, max_k, causal, scale, window, gqa, *rest = given
        used, table, splits = (*rest, None, None, None)[:3]
        assert self.device.type == "cuda" and not causal and list(window) == [-1, -1]
        assert query.dtype == key.dtype == value.dtype
        assert self.any_precision or query.dtype in (torch.bfloat16, torch.float16), query.dtype
        assert splits == 1, "else batch mates change the order of sums"
        tensors = [x for x in (query, key, value, cu_q, cu_k, used, table) if x is not None]
        assert all(isinstance(x, OnGPU) for x in tensors), "all on the device"
        assert all(x.stride(-1) == 1 for x in (query, key, value)), "last dimension contiguous"
        indices = [x for x in (cu_q, cu_k, used, table) if x is not None]
        assert all(x.dtype == torch.int32 and x.is_contiguous() for x in indices)
        starts = cu_q.values.tolist()
        counts = [b - a for a, b in itertools.pairwise(starts)]
        assert starts[0] == 0 and starts[-1] == query.shape[0] and max_q >= max(counts)
        keys, values = (list(_seen(x.held, cu_k, used, table)) for x in (key, value))
        assert len(keys) == len(counts) and max_k >= max(map(len, keys))
        out = torch.empty_like(query.held, memory_format=torch.contiguous_format)
        flops = 0
        pieces = zip(query.held.split(counts), keys, values, out.split(counts), strict=True)
        for q, k, v, into in pieces:
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
            flops += 4 * q.numel() * k.shape[2]
            if not self.shapes_only:
                attended = scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=gqa)
                into.copy_(attended[0].transpose(0, 1))
        self._note("varlen_attn", size_of((query.held, keys, values, out)), flops)
        self._note("zeros (in varlen_attn)", 16, 0)  # the state of its random numbers
        return OnGPU(out), OnGPU(torch.zeros(2)), OnGPU(torch.zeros(2))


def _seen(held: torch.Tensor, ends: Any, used: Any, table: Any) -> Iterator[torch.Tensor]:
    """The keys or values that each span sees, (count, heads, head_dim)."""
    starts = ends.values.tolist()
    if table is None:
        assert used is None and starts[-1] == held.shape[0]
        yield from held.split([b - a for a, b in itertools.pairwise(starts)])
        return
    assert used is not None and held.dim() == 4 and held.shape[1] % PAGE == 0
    for count, pages in zip(used.values.tolist(), table.values.tolist(), strict=True):
        needed = -(-count // held.shape[1])
        yield torch.cat([held[page] for page in pages[:needed]])[:count]


def _check_product_of_bytes(left: torch.Tensor, right: torch.Tensor) -> None:
    """What `_int_mm` asks on CUDA; a right side in rows is taken, and several times slower."""
    assert left.shape[0] > 16, "self.size(0) needs to be greater than 16"
    assert left.shape[1] % 8 == 0 and right.shape[1] % 8 == 0, "multiples of 8"
    assert left.is_contiguous() and right.stride() == (1, right.shape[0])


def _picks_by_flags(packet: Any, args: Any) -> bool:
    """Indexing with booleans: how many are true decides the shape."""
    return packet in TAKES_HOST_INDICES and any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )


def _is_composite(func: Any) -> bool:
    """Made of other operations on every device."""
    return func._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments that an operation writes to."""
    written = []
    for number, a in enumerate(func._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            if number < len(args):
                written.append(args[number])
            elif a.name in kwargs:
                written.append(kwargs[a.name])
    return written


def _nothing_to_do(packet: Any, args: Any, result: Any) -> bool:
    """No elements, no launch."""
    if packet in (aten.index_put_, aten._index_put_impl_):
        return any(not index.numel() for index in args[1] if index is not None)
    made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
    return bool(made) and not any(x.numel() for x in made)


def _real(x: Any) -> Any:
    return x.held if isinstance(x, OnGPU) else x


def _wrapped(x: Any) -> Any:
    return OnGPU(x) if isinstance(x, torch.Tensor) and not isinstance(x, OnGPU) else x


def has_mps_kernel(name: str) -> bool:
    """As the table says from which torch is generated; without keys an operation is composite."""
    known = _kernels().get(name.removeprefix("aten::"))
    if known is None:
        return False
    keys, delegate = known
    if delegate:
        return has_mps_kernel(delegate)
    return not keys or "MPS" in keys or any(key.startswith("Composite") for key in keys)


@cache
def _kernels() -> dict[str, tuple[set[str], str | None]]:
    """Of every operation the devices that have a kernel, or the operation that stands for it."""
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for entry in yaml.load(path.read_text(), Loader=loader):
        keys = {key.strip() for each in entry.get("dispatch") or {} for key in each.split(",")}
        found[entry["func"].split("(")[0]] = (keys, entry.get("structured_delegate"))
    return found


def on_gpu(model: torch.nn.Module) -> Any:
    """The model itself, its weights moved to the pretended device."""
    for module in model.modules():
        for name, value in list(module._parameters.items()):
            if value is not None and not isinstance(value, OnGPU):
                moved = torch.nn.Parameter(OnGPU(value.detach()), requires_grad=False)
                module._parameters[name] = moved
        for name, value in list(module._buffers.items()):
            if value is not None and not isinstance(value, OnGPU):
                module._buffers[name] = OnGPU(value)
    return model


@cache
def _load_guards() -> None:
    """Compiled once in a process (2 s), and loaded into it for good."""
    require(shutil.which("g++") is not None, "there is no g++ to compile the pretended GPU's guard")
    root = Path(torch.__file__).parent
    with TemporaryDirectory() as folder:
        library = Path(folder) / "guard.so"
        source = Path(__file__).with_name("guard.cpp")
        flags = ("-std=c++20", "-shared", "-fPIC", "-I", root / "include", "-L", root / "lib")
        subprocess.run(["g++", *flags, source, "-lc10", "-o", library], check=True)
        ctypes.CDLL(str(library))


@contextmanager
def pretend_gpu(
    kind: Kind = "cuda",
    capability: tuple[int, int] = (8, 0),
    package: str = "rho_eos",
    memory: int = 24 * 10**9,
) -> Iterator[PretendGPU]:
    """A GPU of the kind, with so many bytes free, whatever is put there."""
    _load_guards()
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device="cuda") shows its copy
    with (
        mock.patch.object(torch.cuda, "_lazy_init", lambda: None),
        mock.patch.object(torch.cuda, "get_device_capability", lambda device=None: capability),
        mock.patch.object(torch.cuda, "mem_get_info", lambda device=None: (memory, memory)),
        mock.patch.object(torch.mps, "recommended_max_memory", lambda: memory),
        mock.patch.object(torch.mps, "driver_allocated_memory", lambda: 0),
        PretendGPU(kind, package) as gpu,
    ):
        PretendGPU.active = gpu
        try:
            yield gpu
        finally:
            PretendGPU.active = None
            torch._C._set_only_lift_cpu_tensors(before)
