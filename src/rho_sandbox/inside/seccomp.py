"""The system calls that confined code does not need, refused by a seccomp filter.

A deny list, because what a Python program may need is open, and what is dangerous or beyond the
limits is known: kernel facilities with a history of holes, whatever leaves or looks out of the
namespaces, other processes' memory, and memory that no limit counts. Refused calls fail with
`EPERM`, as if a privilege were missing, so that honest code takes its other way.

The numbers of calls differ between architectures. One that is not in `NUMBERS` is not guessed at:
there is no sandbox there.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence

AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
X32_BIT = 0x4000_0000  # x86_64 has each call a second time, for an ABI with short pointers

# Name, number on x86_64, number on aarch64; None where an architecture does not have the call.
NUMBERS: tuple[tuple[str, int | None, int | None], ...] = (
    # The kernel's key store, which the namespaces do not separate.
    ("add_key", 248, 217),
    ("request_key", 249, 218),
    ("keyctl", 250, 219),
    # Large and often broken parts of the kernel.
    ("bpf", 321, 280),
    ("perf_event_open", 298, 241),
    ("io_uring_setup", 425, 425),
    ("io_uring_enter", 426, 426),
    ("io_uring_register", 427, 427),
    ("userfaultfd", 323, 282),
    ("fanotify_init", 300, 262),
    ("fanotify_mark", 301, 263),
    ("lookup_dcookie", 212, 18),
    ("nfsservctl", 180, 42),
    ("personality", 135, 92),
    ("modify_ldt", 154, None),
    ("uselib", 134, None),
    ("sysfs", 139, None),
    ("_sysctl", 156, None),
    # Namespaces, mounts and roots; `clone` is looked at below, by its flags.
    ("unshare", 272, 97),
    ("setns", 308, 268),
    ("mount", 165, 40),
    ("umount2", 166, 39),
    ("pivot_root", 155, 41),
    ("chroot", 161, 51),
    ("open_tree", 428, 428),
    ("move_mount", 429, 429),
    ("fsopen", 430, 430),
    ("fsconfig", 431, 431),
    ("fsmount", 432, 432),
    ("fspick", 433, 433),
    ("mount_setattr", 442, 442),
    ("statmount", 457, 457),
    ("listmount", 458, 458),
    ("open_tree_attr", 467, 467),
    ("name_to_handle_at", 303, 264),
    ("open_by_handle_at", 304, 265),
    # Other processes.
    ("ptrace", 101, 117),
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("process_madvise", 440, 440),
    ("process_mrelease", 448, 448),
    ("pidfd_getfd", 438, 438),
    ("kcmp", 312, 272),
    ("migrate_pages", 256, 238),
    ("move_pages", 279, 239),
    # Memory outside the limits: System V objects, message queues, files without a file system,
    # extended attributes.
    ("shmget", 29, 194),
    ("shmat", 30, 196),
    ("shmctl", 31, 195),
    ("msgget", 68, 186),
    ("msgsnd", 69, 189),
    ("msgrcv", 70, 188),
    ("msgctl", 71, 187),
    ("semget", 64, 190),
    ("semop", 65, 193),
    ("semctl", 66, 191),
    ("semtimedop", 220, 192),
    ("mq_open", 240, 180),
    ("mq_unlink", 241, 181),
    ("memfd_create", 319, 279),
    ("memfd_secret", 447, 447),
    ("setxattr", 188, 5),
    ("lsetxattr", 189, 6),
    ("fsetxattr", 190, 7),
    ("setxattrat", 463, 463),
    # What is counted for the machine, or done to files that the code may only read: asynchronous
    # input and output, locks, and watching who uses them.
    ("io_setup", 206, 0),
    ("io_destroy", 207, 1),
    ("io_submit", 209, 2),
    ("io_cancel", 210, 3),
    ("io_getevents", 208, 4),
    ("io_pgetevents", 333, 292),
    ("inotify_init", 253, None),
    ("inotify_init1", 294, 26),
    ("inotify_add_watch", 254, 27),
    ("inotify_rm_watch", 255, 28),
    ("flock", 73, 32),
    # The machine as a whole. The kernel wants privileges for these, which the code has not.
    ("kexec_load", 246, 104),
    ("kexec_file_load", 320, 294),
    ("init_module", 175, 105),
    ("finit_module", 313, 273),
    ("delete_module", 176, 106),
    ("swapon", 167, 224),
    ("swapoff", 168, 225),
    ("quotactl", 179, 60),
    ("quotactl_fd", 443, 443),
    ("acct", 163, 89),
    ("syslog", 103, 116),
    ("reboot", 169, 142),
    ("sethostname", 170, 161),
    ("setdomainname", 171, 162),
    ("settimeofday", 164, 170),
    ("clock_settime", 227, 112),
    ("clock_adjtime", 305, 266),
    ("adjtimex", 159, 171),
    ("iopl", 172, None),
    ("ioperm", 173, None),
    ("vhangup", 153, 58),
)
CLONE, CLONE3 = (56, 220), (435, 435)
SOCKET, SOCKETPAIR = (41, 198), (53, 199)
PRLIMIT64 = (302, 261)
FCNTL = (72, 25)
#: F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE, F_NOTIFY: locks and watches, too.
FCNTL_COMMANDS = (6, 7, 37, 38, 1024, 1026)

CLONE_FLAGS = 0x7E02_0000  # all CLONE_NEW*; CLONE_NEWTIME is for `unshare` and `clone3` only
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: the namespaces have nothing for them to reach

EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AT_NUMBER, AT_ARCHITECTURE = 0, 4
AT_FIRST_ARGUMENT, AT_SECOND_ARGUMENT = 16, 24  # the low half: both are little-endian
ALLOW, KILL_PROCESS, FAIL = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand


def program(machine: str) -> list[Instruction]:
    """The filter for one architecture."""
    column = list(AUDIT_ARCH).index(machine)
    denied = [row[1:][column] for row in NUMBERS]
    lines: list[Instruction] = [
        (LOAD, 0, 0, AT_ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (RETURN, 0, 0, KILL_PROCESS),  # another ABI of the same processor: other numbers
        (LOAD, 0, 0, AT_NUMBER),
        (JUMP_AT_LEAST, 0, 1, X32_BIT),
        (RETURN, 0, 0, FAIL | ENOSYS),
    ]
    for number in denied:
        if number is not None:
            lines += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL | EPERM)]
    # Its flags are in memory, where a filter cannot look: libc falls back to `clone`.
    lines += [(JUMP_EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, FAIL | ENOSYS)]
    lines += on_argument(
        CLONE[column], [(JUMP_ANY_BIT, 0, 1, CLONE_FLAGS), (RETURN, 0, 0, FAIL | EPERM)]
    )
    for number in (SOCKET[column], SOCKETPAIR[column]):
        lines += on_argument(
            number,
            [
                *((JUMP_EQUAL, len(FAMILIES) - i, 0, family) for i, family in enumerate(FAMILIES)),
                (RETURN, 0, 0, FAIL | EAFNOSUPPORT),
            ],
        )
    # Limits of this process only: those of its neighbours decide whether they live.
    lines += on_argument(PRLIMIT64[column], [(JUMP_EQUAL, 1, 0, 0), (RETURN, 0, 0, FAIL | EPERM)])
    refused = [(JUMP_EQUAL, 0, 1, each) for each in FCNTL_COMMANDS]
    lines += on_argument(
        FCNTL[column],
        [line for each in refused for line in (each, (RETURN, 0, 0, FAIL | EPERM))],
        AT_SECOND_ARGUMENT,
    )
    return [*lines, (RETURN, 0, 0, ALLOW)]


def on_argument(
    number: int, check: Sequence[Instruction], which: int = AT_FIRST_ARGUMENT
) -> Iterator[Instruction]:
    """For one call: load an argument, check it, and allow the call if nothing refused it."""
    yield (JUMP_EQUAL, 0, len(check) + 2, number)
    yield (LOAD, 0, 0, which)
    yield from check
    yield (RETURN, 0, 0, ALLOW)


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse_calls(libc: ctypes.CDLL) -> None:
    """Install the filter for this process and all it starts; it cannot be taken off again."""
    machine = os.uname().machine
    if machine not in AUDIT_ARCH:
        raise OSError(ENOSYS, f"there is no seccomp filter for {machine}")
    words = [
        operation | if_true << 16 | if_false << 24 | operand << 32
        for operation, if_true, if_false, operand in program(machine)
    ]
    lines = (ctypes.c_uint64 * len(words))(*words)
    filter_ = Program(len(words), ctypes.addressof(lines))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"seccomp: {os.strerror(error)}")
