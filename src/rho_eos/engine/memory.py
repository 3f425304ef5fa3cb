"""Memory of the process, where the C library's habits cost time."""

import ctypes
import platform

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
