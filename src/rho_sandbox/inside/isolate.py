"""The Linux calls that confine a process: namespaces, a root, keys, privileges, Landlock.

Runs inside the sandbox's first process, which has nothing but the standard library, so it imports
nothing of the package. Every call that fails raises `OSError` with the name of the call: a
half-built sandbox must never run code.
"""

# ruff: noqa: PTH102, PTH103, PTH106, PTH112, PTH120, PTH123, PTH211
# pathlib would take longer to import than this file to run, and it is imported for every run.

import ctypes
import errno
import os
from collections.abc import Sequence

INNER_ID = 1000  # the user and group id that confined code sees inside a user namespace
HOST_NAME = "sandbox"
WORK_FOLDER = "/sandbox"  # not /tmp: the interpreter may be installed below that
FOLDER_INODES = 4096
STAGING = "/sys"  # mountpoint of the new root: every Linux has it, and no interpreter lives in it

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_MOUNT_SETATTR = 442  # same number on every architecture, as are Landlock's
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = -100, 0x8000, 1, 2
SYS_KEYCTL, KEYCTL_JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38

SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_EXECUTE, LANDLOCK_WRITE_FILE, LANDLOCK_READ_FILE, LANDLOCK_READ_DIR = 1, 2, 4, 8
LANDLOCK_TRUNCATE, LANDLOCK_IOCTL_DEV = 1 << 14, 1 << 15
LANDLOCK_READ = LANDLOCK_EXECUTE | LANDLOCK_READ_FILE | LANDLOCK_READ_DIR
LANDLOCK_ON_FILES = (
    LANDLOCK_EXECUTE
    | LANDLOCK_WRITE_FILE
    | LANDLOCK_READ_FILE
    | LANDLOCK_TRUNCATE
    | LANDLOCK_IOCTL_DEV
)

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name: str, *arguments: object) -> int:
    """Call `libc.name(*arguments)`; if it fails, raise the `OSError` that its errno stands for."""
    return checked(name, getattr(libc, name)(*arguments))


def syscall(name: str, number: int, *arguments: object) -> int:
    """A system call that libc has no function for."""
    return checked(name, libc.syscall(ctypes.c_long(number), *arguments))


def checked(name: str, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def enter_namespaces(*, user_namespace: bool) -> None:
    """New mount, process, network, IPC and host-name namespaces; the next fork is process 1."""
    uid, gid = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    call("unshare", flags | (CLONE_NEWUSER if user_namespace else 0))
    call("sethostname", HOST_NAME.encode(), ctypes.c_size_t(len(HOST_NAME)))
    call("setdomainname", HOST_NAME.encode(), ctypes.c_size_t(len(HOST_NAME)))
    if user_namespace:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{INNER_ID} {uid} 1")
        write("/proc/self/gid_map", f"{INNER_ID} {gid} 1")


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def enter_new_root(
    readable: Sequence[str],
    devices: Sequence[str],
    links: Sequence[tuple[str, str]],
    folder_bytes: int,
) -> None:
    """Leave the root for one with the readable paths, read-only, and an empty work folder."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for path in (*readable, *devices):
        bind(path, STAGING + path)
    for path, target in links:
        os.makedirs(os.path.dirname(STAGING + path), exist_ok=True)
        os.symlink(target, STAGING + path)
    os.makedirs(STAGING + WORK_FOLDER, exist_ok=True)
    old_root = STAGING + "/.old"
    os.mkdir(old_root)
    call("pivot_root", STAGING.encode(), old_root.encode())
    os.chdir("/")
    call("umount2", b"/.old", MNT_DETACH)
    os.rmdir("/.old")
    make_read_only("/")
    mount_work_folder(folder_bytes)


def cover_work_folder(folder_bytes: int) -> None:
    """A work folder over the one that bubblewrap made, which has no limit on its inodes."""
    call("unshare", CLONE_NEWNS)
    mount_work_folder(folder_bytes)


def mount_work_folder(folder_bytes: int) -> None:
    options = f"size={folder_bytes},nr_inodes={FOLDER_INODES},mode=1777"
    mount("tmpfs", WORK_FOLDER, "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.chdir(WORK_FOLDER)


def bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, None, MS_BIND | MS_REC)


def mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    data = options.encode() if options is not None else None
    try:
        call("mount", *encoded, ctypes.c_ulong(flags), data)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source} on {target})") from None


def make_read_only(path: str) -> None:
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    syscall(
        "mount_setattr",
        SYS_MOUNT_SETATTR,
        AT_FDCWD,
        path.encode(),
        AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )


def leave_keyrings() -> None:
    """A session keyring of its own: no namespace separates the one that is inherited.

    This fails where a kernel has no keys, a container refuses, or a user has too many keys. The
    filter refuses all calls on keys in any case.
    """
    number = SYS_KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"the number of keyctl on {os.uname().machine} is not known")
    try:
        syscall("keyctl", number, KEYCTL_JOIN_SESSION_KEYRING, None)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EDQUOT):
            raise


def drop_privileges(uid: int | None) -> None:
    """No capabilities, no way to gain any, and no peeking into this process by those it starts.

    `uid` is given when root started the sandbox: root is exempt from the process limit, so the
    code runs as a user that nobody else is.
    """
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def landlock_version() -> int:
    """The kernel's Landlock ABI version, 0 where it has none."""
    size, version_flag = ctypes.c_size_t(0), 1
    number = ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET)
    return max(0, int(libc.syscall(number, None, size, version_flag)))


def restrict_files(version: int, readable: Sequence[str], devices: Sequence[str]) -> None:
    """Landlock: open only these paths, no mounts, no TCP, no signals or sockets to the outside."""
    rights = handled_rights(version)
    network = 0b11 if version >= 4 else 0  # bind and connect TCP
    scope = 0b11 if version >= 6 else 0  # abstract sockets and signals
    attributes = (ctypes.c_uint64 * 3)(rights, network, scope)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscall(
        "landlock_create_ruleset",
        SYS_LANDLOCK_CREATE_RULESET,
        ctypes.byref(attributes),
        ctypes.c_size_t(size),
        0,
    )
    for path in readable:
        allow(ruleset, path, rights & LANDLOCK_READ)
    for path in devices:
        allow(ruleset, path, rights & (LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE))
    allow(ruleset, WORK_FOLDER, rights)
    syscall("landlock_restrict_self", SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def keep_signals_inside() -> None:
    """Landlock, where it can: this process reaches with signals only what it starts itself."""
    if landlock_version() >= 6:
        attributes = (ctypes.c_uint64 * 3)(0, 0, 0b10)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        number = SYS_LANDLOCK_CREATE_RULESET
        ruleset = syscall("landlock_create_ruleset", number, ctypes.byref(attributes), size, 0)
        syscall("landlock_restrict_self", SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)


def handled_rights(version: int) -> int:
    """All file rights a Landlock version knows: bits 0–12, then one each in versions 2, 3 and 5."""
    known = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    return (1 << known) - 1


def allow(ruleset: int, path: str, rights: int) -> None:
    class PathBeneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))

    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= LANDLOCK_ON_FILES
        rule = PathBeneath(rights, handle)
        syscall("landlock_add_rule", SYS_LANDLOCK_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
    finally:
        os.close(handle)
