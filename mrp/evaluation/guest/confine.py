"""A process gives up what a small program does not need: limits, system calls, files.

Applied by the process itself, before foreign code runs in it; nothing of it can be undone later.
Every layer the system lacks is reported, not skipped in silence.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import resource
import struct
import sys
from typing import Any

EPERM, ENOSYS = 1, 38
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SIGKILL = 9
CLONE_THREAD = 0x10000

# System call numbers (x86_64, aarch64); None where the architecture has no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # processes
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "unshare": (272, 97),
    "setns": (308, 268),
    # other processes
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # network (a socketpair, which asyncio needs, reaches nobody)
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    # memory that the address-space limit does not see, or that outlives the process
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # owners, modes, times and attributes of files, which Landlock leaves to their owner
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    # what others do with files
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    # the kernel
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
}
CLONE = (56, 220)
CLONE3 = (435, 435)
PRLIMIT64 = (302, 261)
PRCTL = (157, 167)
IOCTL = (16, 29)
# To outlive the parent, to be looked into.
DENIED_PRCTL = (PR_SET_PDEATHSIG, PR_SET_DUMPABLE, 0x59616D61)
# FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, TIOCSTI, TIOCLINUX: flags of files, input to a terminal.
DENIED_IOCTL = (0x40086602, 0x401C5820, 0x5412, 0x541C)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def confine(settings: dict[str, Any]) -> list[str]:
    """Apply every layer to this process and return the names of those the system lacks.

    Args:
        settings: memory (bytes of address space), cpu (seconds), file_bytes (largest file),
            readable and writable (paths), root (whether the user outside is root, whose processes
            no limit counts).

    Raises:
        RuntimeError: nothing would bound the number of processes.
    """
    missing = set_limits(settings)
    if not sys.platform.startswith("linux"):
        return [*missing, "system call filter", "file rules"]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    drop_capabilities(libc)
    if not restrict_files(libc, settings["readable"], settings["writable"]):
        missing.append("file rules")
    if not filter_system_calls(libc):
        missing.append("system call filter")
        if settings["root"]:
            raise RuntimeError("root without a system call filter: processes cannot be bounded")
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    return missing


def set_limits(settings: dict[str, Any]) -> list[str]:
    """Resource limits, soft = hard, so that the kernel's answer is a kill and not a signal."""
    cpu = math.ceil(settings["cpu"]) + 1
    wanted = {
        "RLIMIT_AS": settings["memory"],
        "RLIMIT_CPU": cpu,
        "RLIMIT_FSIZE": settings["file_bytes"],
        "RLIMIT_NOFILE": 64,
        "RLIMIT_CORE": 0,
    }
    if not sys.platform.startswith("linux"):
        wanted["RLIMIT_NPROC"] = 0
    missing = []
    for name, value in wanted.items():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, ValueError, OSError):
            missing.append(name)
    return missing


def drop_capabilities(libc: ctypes.CDLL) -> None:
    """Root without capabilities: it owns files, but it rules nothing."""
    version = 0x20080522
    header = struct.pack("<Ii", version, 0)
    libc.capset(header, bytes(24))


# Files: Landlock


def restrict_files(libc: ctypes.CDLL, readable: list[str], writable: list[str]) -> bool:
    """Only `readable` can be read and only `writable` changed; False where Landlock is missing.

    The same rule set denies TCP and signals to outside processes where the kernel knows how.
    """
    create, add, restrict = 444, 445, 446
    version = libc.syscall(create, None, 0, 1)
    if version < 1:
        return False
    file_bits = 0b111 | (1 << 14 if version >= 3 else 0) | (1 << 15 if version >= 5 else 0)
    all_bits = 0x1FFF | (1 << 13 if version >= 2 else 0) | file_bits
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("<QQQ", all_bits, 0b11, 0b11)[:size]
    rules = libc.syscall(create, attributes, size, 0)
    if rules < 0:
        return False
    read_bits = 0b1101  # execute, read a file, list a directory
    for path, bits in [(p, read_bits) for p in readable] + [(p, all_bits) for p in writable]:
        if not os.path.exists(path):
            continue
        allowed = bits if os.path.isdir(path) else bits & file_bits
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
        failed = libc.syscall(add, rules, 1, struct.pack("<Qi", allowed, target), 0)
        os.close(target)
        if failed:
            return False
    failed = libc.syscall(restrict, rules, 0)
    os.close(rules)
    return not failed


# System calls: seccomp

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24


def filter_system_calls(libc: ctypes.CDLL) -> bool:
    """Deny `DENIED`, new processes (not threads), others' limits and more; False if we cannot."""
    machine = platform.machine()
    if machine not in ARCHITECTURES or sys.byteorder != "little":
        return False
    program = build_filter(*ARCHITECTURES[machine])
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    filters = Program(len(program), ctypes.addressof(code))
    return not libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(filters), 0, 0)


def build_filter(column: int, architecture: int) -> list[tuple[int, int, int, int]]:
    """The filter's instructions (code, jump if true, jump if false, operand)."""
    deny = (RETURN, 0, 0, ERRNO | EPERM)
    allow = (RETURN, 0, 0, ALLOW)
    lines = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
    ]
    if column == 0:  # the second numbering (x32) that an x86_64 kernel may answer to
        lines += [(AT_LEAST, 0, 1, 0x40000000), deny]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            lines += [(EQUAL, 0, 1, number), deny]
    # Its flags lie in memory, where a filter cannot look; the C library then takes plain clone.
    lines += [(EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, ERRNO | ENOSYS)]
    lines += [
        (EQUAL, 0, 4, CLONE[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 1, 0, CLONE_THREAD),
        deny,
        allow,
    ]
    lines += [
        (EQUAL, 0, 4, PRLIMIT64[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (EQUAL, 1, 0, 0),
        deny,
        allow,
    ]
    for call, argument, values in (
        (PRCTL[column], FIRST_ARGUMENT, DENIED_PRCTL),
        (IOCTL[column], SECOND_ARGUMENT, DENIED_IOCTL),
    ):
        denials = [line for value in values for line in ((EQUAL, 0, 1, value), deny)]
        lines += [(EQUAL, 0, len(denials) + 2, call), (LOAD, 0, 0, argument), *denials, allow]
    return [*lines, allow]
