"""Memory of the process: where the C library's habits cost time, and what to do when it is out."""

import ctypes
import platform

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h


def keep_freed_memory() -> None:
    """Have glibc keep large blocks for the next forward instead of returning them to the kernel.

    On a CPU every forward allocates the same activations again. Returned and asked for anew, each
    page of them is faulted in and zeroed once more: a fifth of the time of a small model.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. GPUs say so by a type of error, torch's allocator for CPUs in
    words."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("not enough memory", "DefaultCPUAllocator", "MPS backend out of memory")
    return isinstance(error, RuntimeError) and any(each in str(error) for each in words)


def give_back() -> None:
    """Return what is kept for later to the device, so that a smaller forward may have it."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
