"""What confined code may not ask of the kernel: keys, memory that no limit counts, dangerous calls.

Each hostile program prints `ESCAPED` only after it has got what it must not get.
"""

import ctypes
import errno
import os
import platform
import secrets

import pytest

from rho_sandbox import Backend, Limits, run_python
from rho_sandbox.inside import isolate, seccomp
from tests.sandbox.hostile import TRYING
from tests.support import require

MACHINE = platform.machine()
CALLS = {row[0]: row[1:][MACHINE == "aarch64"] for row in seccomp.NUMBERS}
SMALL = Limits(cpu_seconds=10, memory_bytes=256 << 20, file_bytes=16 << 20, folder_bytes=8 << 20)
HEADER = f"{TRYING}\nimport ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def run(backend: Backend, code: str) -> str:
    result = run_python(HEADER + code, limits=SMALL, backend=backend)
    assert "ESCAPED" not in result.stdout, result
    assert result.ok, result.stderr
    return result.stdout


def test_the_graders_keys_can_be_neither_read_nor_changed(backend: Backend) -> None:
    secret, name = secrets.token_hex(8).encode(), b"rho-eos-test-key"
    add_key, keyctl = CALLS["add_key"], CALLS["keyctl"]
    libc = isolate.libc
    key = libc.syscall(add_key, b"user", name, secret, len(secret), -3)  # the session's keyring
    require(key > 0, "the kernel keeps no keys for this process")
    try:
        run(
            backend,
            f"""
data = ctypes.create_string_buffer(64)
for ring in (-3, -4, -5, {key}):
    found = libc.syscall({keyctl}, 10, ring, b"user", {name!r}, 0)  # search
    for key in (found, {key}):
        if libc.syscall({keyctl}, 11, key, data, 64) > 0:  # read
            print("ESCAPED", data.value)
        if libc.syscall({keyctl}, 2, key, b"harm", 4) == 0:  # update
            print("ESCAPED by writing")
    if libc.syscall({add_key}, b"user", {name!r}, b"harm", 4, ring) > 0:
        print("ESCAPED by adding")
""",
        )
        data = ctypes.create_string_buffer(64)
        assert libc.syscall(keyctl, 11, key, data, 64) == len(secret)
        assert data.value == secret
    finally:
        libc.syscall(keyctl, 3, key)  # revoke


REFUSED = {
    "shared memory beyond the memory limit": """
libc.shmat.restype = ctypes.c_void_p
total = 0
for _ in range(3):
    segment = libc.shmget(0, ctypes.c_size_t(128 << 20), 0o1600)
    if segment >= 0:
        total += 128
        address = libc.shmat(segment, None, 0)
        libc.shmdt(ctypes.c_void_p(address))
if total:
    print("ESCAPED with", total, "MiB")
""",
    "files without a file system": """
files = []
try:
    for _ in range(20):
        files.append(os.memfd_create("x"))
        os.write(files[-1], bytes(15 << 20))
    print("ESCAPED")
except OSError:
    pass
""",
    "message queues and semaphores": """
if libc.msgget(0, 0o1600) >= 0 or libc.semget(0, 10, 0o1600) >= 0:
    print("ESCAPED")
if libc.mq_open(b"/rho-eos", 0o102, 0o600, None) >= 0:
    print("ESCAPED by mq_open")
""",
    "extended attributes": """
open("file", "w").close()
must_fail(lambda: os.setxattr("file", "user.x", bytes(1024)))
""",
    "sockets that are neither local nor of the internet": f"""
import socket
for family in (16, 17, 38, 40):  # netlink, packet, crypto, virtual machines
    for make in (socket.socket, socket.socketpair):
        for kind in (socket.SOCK_STREAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                make(family, kind)
                print("ESCAPED")
            except OSError as error:
                assert error.errno == {errno.EAFNOSUPPORT}, error
socket.socket(socket.AF_INET), socket.socket(socket.AF_INET6), socket.socketpair()
""",
    "other namespaces": f"""
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
    if libc.unshare(flag) == 0:
        print("ESCAPED by unshare", hex(flag))
for flag in (0x10000000, 0x10000000 | 0x20000):
    pid = libc.syscall({seccomp.CLONE[MACHINE == "aarch64"]}, flag | 17, None, None, None, None)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        print("ESCAPED by clone")
if libc.syscall({seccomp.CLONE3[0]}, None, 0) == 0 or ctypes.get_errno() != {errno.ENOSYS}:
    print("ESCAPED by clone3")
""",
    "asynchronous input and output, whose number the machine limits": f"""
context = ctypes.c_ulong(0)
if libc.syscall({CALLS["io_setup"]}, 65536, ctypes.byref(context)) == 0:
    print("ESCAPED")
""",
    "locks on files that can be read": """
import fcntl
with open(os.__file__) as host:
    for lock in (fcntl.flock, fcntl.lockf):
        must_fail(lambda: lock(host, fcntl.LOCK_SH | fcntl.LOCK_NB), "by a lock")
    must_fail(lambda: fcntl.fcntl(host, fcntl.F_SETLEASE, fcntl.F_RDLCK), "by a lease")
    must_fail(lambda: fcntl.fcntl(host, 37, bytes(32)), "by another lock")
    fcntl.fcntl(host, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
""",
    "watching who uses files": """
import fcntl
for start in (libc.inotify_init, lambda: libc.inotify_init1(0)):
    if start() >= 0:
        print("ESCAPED")
folder = os.open(os.path.dirname(os.__file__), os.O_RDONLY)
must_fail(lambda: fcntl.fcntl(folder, fcntl.F_NOTIFY, 1), "by dnotify")
""",
    "limits of other processes": """
import resource
for pid in range(1, 20):
    must_fail(lambda: resource.prlimit(pid, resource.RLIMIT_CPU))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
""",
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_kernel_refuses(backend: Backend, what: str) -> None:
    run(backend, REFUSED[what])


def test_the_work_folder_has_a_limited_number_of_files(backend: Backend) -> None:
    made = run(
        backend,
        f"""
made = 0
try:
    while made < {3 * isolate.FOLDER_INODES}:
        os.mkdir(f"d{{made}}")
        made += 1
    print("ESCAPED")
except OSError as error:
    print(made, error.strerror)
""",
    )
    assert int(made.split()[0]) < isolate.FOLDER_INODES and "No space left" in made


@pytest.mark.parametrize("name", [row[0] for row in seccomp.NUMBERS])
def test_every_refused_call_is_refused(name: str) -> None:
    """With arguments that the kernel itself answers otherwise, or after it: by the filter alone."""
    require(CALLS.get(name) is not None, f"{MACHINE} has no {name}")
    assert refused([CALLS[name]]) == [errno.EPERM]


def refused(numbers: list[int | None]) -> list[int]:
    """How calls fail under the filter, without any other confinement; 0: they did not."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            isolate.call("prctl", isolate.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            seccomp.refuse_calls(isolate.libc)
            for number in numbers:
                result = isolate.libc.syscall(ctypes.c_long(number or 0), -1, -1, -1, -1, -1, -1)
                os.write(writer, bytes([ctypes.get_errno() if result < 0 else 0]))
        finally:
            os._exit(0)
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    found = list(os.read(reader, 4096))
    os.close(reader)
    return found if status == 0 else [*found, -status]


def test_the_second_abi_of_the_processor_is_refused() -> None:
    require(MACHINE == "x86_64", "only x86_64 has x32")
    getpid = 39
    assert refused([getpid | seccomp.X32_BIT, 520 | seccomp.X32_BIT]) == [errno.ENOSYS] * 2


def test_another_architecture_ends_the_process(backend: Backend) -> None:
    """`int 0x80` calls by the numbers of 32-bit x86, for which the filter has no names."""
    require(MACHINE == "x86_64", "machine code for x86_64")
    code = "b8 14 00 00 00 cd 80 c3"  # mov eax, 20 (getpid); int 0x80; ret
    result = run_python(
        HEADER
        + f"""
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex({code!r}))
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print("ESCAPED", ctypes.CFUNCTYPE(ctypes.c_int)(address)(), flush=True)
""",
        backend=backend,
    )
    assert "ESCAPED" not in result.stdout
    assert result.killed_by == "SIGSYS"


@pytest.mark.parametrize("machine", list(seccomp.AUDIT_ARCH))
def test_the_filter_is_well_formed_for_every_architecture(machine: str) -> None:
    """Run by hand on each call: what the table names is refused, everything else is allowed."""
    column = list(seccomp.AUDIT_ARCH).index(machine)
    table = {row[1 + column] for row in seccomp.NUMBERS} - {None}
    assert len(table) == sum(row[1 + column] is not None for row in seccomp.NUMBERS)
    for number in range(470):
        verdict = interpret(machine, number, first_argument=1)
        if number == seccomp.FCNTL[column]:
            for command in range(1100):
                refused = command in (6, 7, 37, 38, 1024, 1026)
                found = interpret(machine, number, 1, second_argument=command)
                assert found == (seccomp.FAIL | errno.EPERM if refused else seccomp.ALLOW)
        elif number in table or number == seccomp.PRLIMIT64[column]:
            assert verdict == seccomp.FAIL | errno.EPERM, number
        elif number == seccomp.CLONE3[column]:
            assert verdict == seccomp.FAIL | errno.ENOSYS
        else:
            assert verdict == seccomp.ALLOW, number
    assert interpret(machine, seccomp.PRLIMIT64[column], 0) == seccomp.ALLOW
    assert interpret(machine, seccomp.CLONE[column], 0x10000011) == seccomp.FAIL | errno.EPERM
    for family in range(50):
        allowed = interpret(machine, seccomp.SOCKET[column], family) == seccomp.ALLOW
        assert allowed == (family in (1, 2, 10))
    assert interpret(machine, 1, 0, architecture=0x4000_0003) == seccomp.KILL_PROCESS


def interpret(
    machine: str,
    number: int,
    first_argument: int,
    architecture: int | None = None,
    second_argument: int = 0,
) -> int:
    """The value that the filter returns for a call."""
    data = {
        seccomp.AT_NUMBER: number,
        seccomp.AT_ARCHITECTURE: architecture or seccomp.AUDIT_ARCH[machine],
        seccomp.AT_FIRST_ARGUMENT: first_argument,
        seccomp.AT_SECOND_ARGUMENT: second_argument,
    }
    lines, position, loaded = seccomp.program(machine), 0, 0
    while True:
        operation, if_true, if_false, operand = lines[position]
        position += 1
        if operation == seccomp.RETURN:
            return operand
        if operation == seccomp.LOAD:
            loaded = data[operand]
            continue
        holds = {
            seccomp.JUMP_EQUAL: loaded == operand,
            seccomp.JUMP_AT_LEAST: loaded >= operand,
            seccomp.JUMP_ANY_BIT: bool(loaded & operand),
        }[operation]
        position += if_true if holds else if_false
