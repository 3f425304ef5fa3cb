"""Which files confined code may read, and the command that starts the sandbox around it."""

import os
import secrets
import shutil
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from rho_sandbox.inside.isolate import HOST_NAME, INNER_ID, WORK_FOLDER

with suppress(ImportError):  # not used here: Python keeps it in compiled form, for every run
    from rho_sandbox.inside import supervisor as _supervisor  # noqa: F401

INSIDE = Path(__file__).with_name("inside")
SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/nix/store", "/etc/ld.so.cache")
MANY_LIBRARIES = 40
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class Backend(StrEnum):
    """How code is confined; recorded with every result."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Setup:
    """A backend, and whether it needs a user namespace: root does without where it may."""

    backend: Backend
    user_namespace: bool


def possible_setups(backend: Backend) -> list[Setup]:
    if backend is Backend.UNSAFE:
        return [Setup(backend, user_namespace=False)]
    needs = [False, True] if os.geteuid() == 0 else [True]
    return [Setup(backend, user_namespace) for user_namespace in needs]


@cache
def package_folders() -> list[str]:
    """Where installed packages are: a solution may import numpy if this interpreter has it."""
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return sorted(path for path in paths if Path(path).is_dir())


def interpreter() -> str:
    """The program itself. Not the one of a virtual environment, which may be a copy elsewhere."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@cache
def interpreter_paths() -> set[str]:
    """What Python needs to start, and no more of the folder that it is installed in."""
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    places = {sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")}
    libraries = {
        file
        for name in ("lib", "lib64")
        for file in Path(sys.base_exec_prefix, name).glob("*.so*")
        if not any(Path(file).is_relative_to(system) for system in SYSTEM_LIBRARIES)
    }
    if len(libraries) > MANY_LIBRARIES:  # conda's, which keeps those of all its packages there
        libraries = {file.parent for file in libraries}
    # A library may be asked for by the name of a link to it.
    found = {*places, *map(str, libraries)}
    return {interpreter(), *found, *map(os.path.realpath, found)}


@cache
def readable_paths() -> list[str]:
    """The interpreter's own files; no path lies inside another."""
    wanted = interpreter_paths() | {
        path for path in SYSTEM_LIBRARIES if Path(path).exists() and not Path(path).is_symlink()
    }
    wanted |= {*package_folders(), str(INSIDE)}
    outermost: list[str] = []
    for path in sorted(wanted):
        if not any(Path(path).is_relative_to(outer) for outer in outermost):
            outermost.append(path)
    return outermost


@cache
def symbolic_links() -> list[tuple[str, str]]:
    """System folders that are links here, such as /lib, and other names of the work folder."""
    system = [Path(path) for path in SYSTEM_LIBRARIES if Path(path).is_symlink()]
    links = [(str(path), str(path.readlink())) for path in system]
    links.append(("/dev/shm", WORK_FOLDER))  # multiprocessing's locks live there
    if not any(Path(path).is_relative_to("/tmp") for path in readable_paths()):
        links.append(("/tmp", WORK_FOLDER))
    return links


def confinement(setup: Setup) -> dict[str, Any]:
    """What the child needs to know to finish shutting itself in."""
    change_user = setup.backend is not Backend.UNSAFE and not setup.user_namespace
    return {
        "backend": str(setup.backend),
        "user_namespace": setup.user_namespace,
        "uid": 0x7000_0000 + secrets.randbelow(1 << 24) if change_user else None,
        "readable": readable_paths(),
        "devices": list(DEVICES),
        "links": symbolic_links(),
        "packages": package_folders(),
    }


def environment(setup: Setup, folder: str) -> dict[str, str]:
    """All variables the code gets; `folder` is its work folder where there is no confinement."""
    home = folder if setup.backend is Backend.UNSAFE else WORK_FOLDER
    return {
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # the same code gets the same verdict every time
        "OPENBLAS_NUM_THREADS": "1",  # numpy would start a thread per core, against our limit
    }


def command(setup: Setup, control: int, folder_bytes: int) -> list[str]:
    """The command line that starts the child with its control socket."""
    child = [interpreter(), "-S", "-s", "-B", "-X", "utf8", str(INSIDE / "start.py"), str(control)]
    if setup.backend is not Backend.BUBBLEWRAP:
        return child
    return [*bubblewrap(setup, folder_bytes), "--", *child]


def bubblewrap(setup: Setup, folder_bytes: int) -> list[str]:
    words = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--as-pid-1"]
    words += [f"--unshare-{kind}" for kind in ("ipc", "pid", "net", "uts", "cgroup-try")]
    words += ["--hostname", HOST_NAME]
    words += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]  # which the child drops in turn
    if setup.user_namespace:
        words += ["--unshare-user", "--uid", str(INNER_ID), "--gid", str(INNER_ID)]
    else:
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    for folder in sorted(
        {up for path in (*readable_paths(), *DEVICES) for up in Path(path).parents}
    ):
        words += ["--perms", "0755", "--dir", str(folder)]  # bwrap's own default keeps others out
    for path in readable_paths():
        words += ["--ro-bind", path, path]
    for path in DEVICES:
        words += ["--dev-bind", path, path]
    for path, target in symbolic_links():
        words += ["--symlink", target, path]
    words += ["--perms", "1777", "--size", str(folder_bytes), "--tmpfs", WORK_FOLDER]
    return [*words, "--remount-ro", "/", "--chdir", WORK_FOLDER]
