"""Programs that cheat, probe, never end or explode; see `tests.evaluation.hostile`.

@FOLDER@ stands for a folder of the host with a file "secret", @PORT@ for a listening port.
"""

from __future__ import annotations

# Wrong values dressed up as a pass.
CHEATS = {
    "os._exit(0) at once": "import os\nos._exit(0)",
    "sys.exit(0) when called": "import sys\ndef f(x): sys.exit(0)",
    "quit() while loading": "quit()",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit(0)",
    "SystemExit in __del__": """
class Last:
    def __del__(self): raise SystemExit(0)
kept = Last()
def f(x):
    Last()
    return 0
""",
    "os._exit in __del__, at the end": """
import os
class Last:
    def __del__(self): os._exit(0)
kept = Last()
def f(x): return 0
""",
    "a fake pass is printed": (
        'import sys\nprint(\'passed\')\nprint(\'{"passed": true, "reason": "passed"}\')\n'
        "sys.stderr.write('passed')\nsys.stdout.flush()\ndef f(x): return 0"
    ),
    "a fake verdict in every pipe": """
import json, os
line = json.dumps({"passed": True, "reason": "passed", "token": "0" * 32}).encode() + b"\\n"
for number in range(64):
    try: os.write(number, line)
    except OSError: pass
def f(x): return 0
""",
    "answers before the questions": """
import json, os
def f(x): return 0
for number in range(3, 21):
    try: os.write(number, json.dumps({"value": None}).encode() + b"\\n")
    except OSError: pass
    try: os.write(number, b'{"value": [["f", {"t": "handle", "v": 0}]]}\\n' * 9)
    except OSError: pass
""",
    "a broken protocol": """
import os
def f(x):
    for number in range(3, 64):
        try: os.write(number, b"[" * 100_000 + b"\\n")
        except OSError: pass
""",
    "all descriptors are closed": "import os\ndef f(x): os.closerange(0, 64)",
    "unknown types in the protocol": """
import os
def f(x):
    for kind in ("code", "module", "handle", "type", "fraction"):
        for number in range(3, 21):
            try: os.write(number, ('{"value": {"t": "%s", "v": "os"}}\\n' % kind).encode())
            except OSError: pass
    return 0
""",
    "the checker is patched": """
import builtins, sys, unittest
builtins.AssertionError = type("Never", (Exception,), {})
builtins.exec = builtins.compile = lambda *a, **k: None
builtins.print = builtins.abs = builtins.all = lambda *a, **k: True
for module in list(sys.modules.values()):
    for name in ("judge", "explain", "check", "encode", "decode"):
        if hasattr(module, name): setattr(module, name, lambda *a, **k: "passed")
def check(*a): return True
def f(x): return 0
""",
    "the modules of the checker are replaced": """
import sys, types
for name in ("json", "tests", "guest.judge", "guest.wire", "guest.candidate", "__main__"):
    sys.modules[name] = types.ModuleType(name)
def f(x): return 0
""",
    "import hooks": """
import builtins, sys
class Finder:
    def find_spec(self, name, path, target=None): raise SystemExit(0)
sys.meta_path.insert(0, Finder())
sys.path_hooks.insert(0, lambda path: Finder())
whole = builtins.__import__
def imported(name, *rest):
    if name in ("json", "traceback"): raise SystemExit(0)
    return whole(name, *rest)
builtins.__import__ = imported
def f(x): return 0
""",
    "the class of assert's exception": (
        "class AssertionError(Exception): pass\n"
        "def f(x):\n"
        "    import builtins\n"
        "    builtins.AssertionError = StopIteration\n"
        "    raise StopIteration"
    ),
    "a result that equals everything": (
        "class Same:\n"
        "    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "    def __hash__(self): return 0\n"
        "def f(x): return Same()"
    ),
    "an int that equals everything": (
        "class Same(int):\n    def __eq__(self, other): return True\ndef f(x): return Same(0)"
    ),
    "a list, a text and a dict that equal everything": """
def equal(kind): return type(kind.__name__, (kind,), {"__eq__": lambda *_: True, "__hash__": id})
values = [equal(list)([1]), equal(str)("a"), equal(dict)(a=1), equal(float)(9.5)]
def f(x): return values[x % 4]
""",
    "a class whose metaclass says it is an int": """
class Meta(type):
    def __instancecheck__(self, other): return True
    def __eq__(self, other): return True
    def __hash__(self): return hash(int)
class Same(metaclass=Meta):
    __class__ = int
    def __index__(self): return 2
    def __int__(self): return 2
def f(x): return Same
""",
    "the test's frames, gc and source are searched": """
import gc, sys, inspect
def f(x):
    frame, seen = sys._getframe(), []
    while frame:
        seen += [str(v) for v in (*frame.f_locals.values(), *frame.f_globals.values())]
        frame = frame.f_back
    seen += [str(o) for o in gc.get_objects() if isinstance(o, (dict, list, str))]
    try: seen.append(open(__file__).read())
    except Exception: pass
    found = [s for s in seen if "assert f(1)" + " == 2" in s or "token" + '"' in s]
    raise SystemExit("ESC" + "APED" if found else "nothing")
""",
    "every thread's frames are searched": """
import sys, threading
def f(x):
    for frame in sys._current_frames().values():
        while frame:
            if "assert f" + "(1) ==" in str(frame.f_locals): print("ESC" + "APED")
            frame = frame.f_back
    return 0
""",
    "a tracing function skips lines": """
import sys, threading
def skip(frame, event, arg):
    try: frame.f_lineno += 2
    except Exception: pass
    return skip
def f(x):
    frame = sys._getframe()
    while frame:
        frame.f_trace = skip
        frame = frame.f_back
    sys.settrace(skip)
    sys.setprofile(skip)
    threading.settrace(skip)
    return 0
""",
    "an exception hook": """
import sys, threading
sys.excepthook = threading.excepthook = sys.unraisablehook = lambda *a: sys.exit(0)
def f(x): raise AssertionError
""",
    "an audit hook that ends the program": (
        "import os, sys\ndef f(x):\n    sys.addaudithook(lambda *a: os._exit(0))\n    return 0"
    ),
    "a thread answers later": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.2), print("passed"))).start()
def f(x): return 0
""",
    "exceptions that are no Exception": (
        "class Odd(BaseException):\n    def __str__(self): raise KeyboardInterrupt\n"
        "def f(x): raise Odd"
    ),
    "an endless chain of exceptions": """
def f(x):
    error = ValueError("x" * 10**6)
    for _ in range(10**4):
        error.__context__, error = error, ValueError()
        error = ValueError(error)
    raise error
""",
    "recursion": "import sys\nsys.setrecursionlimit(10**8)\ndef f(x): return max([x], key=f)",
    "a segmentation fault": "import ctypes\ndef f(x): return ctypes.string_at(0)",
    "memory of the interpreter is overwritten": """
import ctypes
def f(x):
    ctypes.memset(id(2), 255, 64)
    return 0
""",
    "source with a NUL": "def f(x): return 2\0",
    "source with a lone surrogate": "def f(x): return '\ud800'",
    "source in another encoding": "# -*- coding: utf-7 -*-\ndef f(x): return '+AAo-'",
    "source with terminal commands": "def f(x): raise ValueError('\\x1b[2J\\x1b]0;ESC\\x07')",
}

# Attempts to see, change or reach something outside; success says ESCAPED.
_TRY = """
def attempt(what, action):
    try: result = action()
    except BaseException: return
    if result not in (None, -1, b"", ""): print("ESC" + "APED", what, repr(result)[:80], flush=True)
"""
PROBES = {
    "files outside are read": f"""{_TRY}
import os
def f(x):
    for name in ("@FOLDER@/secret", "/etc/passwd", "/etc/shadow", "/proc/1/environ",
                 "/proc/self/environ", "/proc/self/maps", "/root/.bashrc", "/work", "/sys/kernel"):
        attempt(name, lambda: open(name).read(9))
        attempt(name, lambda: os.listdir(name))
    return 0
""",
    "files outside are changed": f"""{_TRY}
import os, shutil
def f(x):
    secret = "@FOLDER@/secret"
    attempt("write", lambda: open(secret, "w").write("x"))
    attempt("append", lambda: open(os.__file__, "a").write("x"))
    for name, action in (("remove", os.remove), ("truncate", lambda p: os.truncate(p, 0)),
                         ("chmod", lambda p: os.chmod(p, 0)), ("utime", os.utime),
                         ("rename", lambda p: os.rename(p, p + "2")),
                         ("link", lambda p: os.link(p, "@FOLDER@/mrp-hostile")),
                         ("tree", lambda p: shutil.rmtree("@FOLDER@"))):
        attempt(name, lambda: (action(secret), "done")[1])
    return 0
""",
    "files and folders are made": f"""{_TRY}
import os
def f(x):
    for folder in ("@FOLDER@", "/", "/dev/shm", "/var/tmp", os.path.dirname(os.__file__)):
        name = folder + "/mrp-hostile"
        attempt(name, lambda: open(name, "w").write("x"))
        attempt(name, lambda: (os.mkdir(name), "made")[1])
        attempt(name, lambda: (os.symlink("/etc", name), "linked")[1])
        attempt(name, lambda: (os.mkfifo(name), "made")[1])
    return 0
""",
    "links lead outside": f"""{_TRY}
import os
def f(x):
    for number, target in enumerate(("@FOLDER@/secret", "/etc/passwd", "../../etc/passwd")):
        link = f"/tmp/mrp-hostile-{{number}}"
        try: os.symlink(target, link)
        except OSError: link = target
        attempt(target, lambda: open(link).read(9))
        attempt(target, lambda: open(link, "a").write("x"))
    return 0
""",
    "a byte code cache is poisoned": f"""{_TRY}
import os, py_compile
def f(x):
    folder = os.path.dirname(os.__file__)
    attempt("cache", lambda: open(folder + "/__pycache__/os.cpython-311.pyc", "wb").write(b"x"))
    attempt("cache", lambda: py_compile.compile(os.__file__, folder + "/mrp-hostile.pyc"))
    return 0
""",
    "the network": f"""{_TRY}
import socket
def f(x):
    place = ("127.0.0.1", @PORT@)
    for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM),
                         (socket.AF_INET6, socket.SOCK_STREAM),
                         (socket.AF_UNIX, socket.SOCK_STREAM),
                         (socket.AF_INET, socket.SOCK_RAW), (socket.AF_NETLINK, socket.SOCK_RAW),
                         (socket.AF_PACKET, socket.SOCK_RAW)):
        attempt(str(family), lambda: socket.socket(family, kind).connect(place) or 1)
        attempt(str(family), lambda: socket.socket(family, kind).bind(("127.0.0.1", 0)) or 1)
    attempt("name", lambda: socket.gethostbyname("example.org"))
    return 0
""",
    "secrets in the environment": f"""{_TRY}
import os, sys
def f(x):
    seen = [" ".join(f"{{k}}={{v}}" for k, v in os.environ.items()), " ".join(sys.argv)]
    for pid in ("self", "1", str(os.getppid())):
        for name in ("environ", "cmdline"):
            try: seen.append(open(f"/proc/{{pid}}/{{name}}").read())
            except OSError: pass
    for word in ("TOKEN", "SECRET", "HF_", "token", "PYTEST", "VIRTUAL_ENV"):
        if any(word in text for text in seen): print("ESC" + "APED", word)
    return 0
""",
    "processes are started": f"""{_TRY}
import os, subprocess, sys
def f(x):
    attempt("fork", os.fork)
    attempt("forkpty", os.forkpty)
    attempt("spawn", lambda: os.posix_spawn("/bin/true", ["true"], {{}}))
    attempt("run", lambda: subprocess.run([sys.executable, "-c", "print(1)"], check=True))
    attempt("exec", lambda: os.execv(sys.executable, [sys.executable, "-c", "print('ESC'+'APED')"]))
    import multiprocessing
    attempt("multi", lambda: multiprocessing.Pool(2).map(abs, [1]))
    return 0
""",
    "a daemon stays": f"""{_TRY}
import os, time
def f(x):
    for _ in range(3):
        try:
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0: time.sleep(30)
                os._exit(0)
            print("ESC" + "APED")
        except OSError: pass
    return 0
""",
    "forbidden system calls": f"""{_TRY}
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def f(x):
    calls = dict(fork=57, vfork=58, execve=59, kill=62, ptrace=101, unshare=272, setns=308, bpf=321,
                 userfaultfd=323, io_uring=425, memfd=319, shmget=29, mount=165, chroot=161,
                 keyctl=250, perf=298, x32_fork=0x40000039, x32_socket=0x40000029, pidfd=434)
    for name, number in calls.items():
        if name not in ("fork", "vfork", "x32_fork"):
            attempt(name, lambda: libc.syscall(number, 16, 0, 0, 0, 0))
    for name in ("fork", "vfork", "x32_fork"):
        pid = libc.syscall(calls[name])
        if pid == 0: libc._exit(0)
        if pid != -1: print("ESC" + "APED", name)
    return 0
""",
    "the parents and all others are killed": f"""{_TRY}
import os, signal
def f(x):
    for pid in (os.getppid(), 1, 0, -1, *range(os.getppid() - 9, os.getppid() + 9)):
        if pid == os.getpid(): continue
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            attempt(f"kill {{pid}}", lambda: (os.kill(pid, number), "sent")[1])
    attempt("group", lambda: (os.killpg(os.getpgid(os.getppid()), 9), "sent")[1])
    return 0
""",
    "the judge is traced": f"""{_TRY}
import ctypes, os
libc = ctypes.CDLL(None)
def f(x):
    for pid in range(max(2, os.getpid() - 5), os.getpid() + 6):
        if pid == os.getpid(): continue
        attempt("attach", lambda: libc.ptrace(16, pid, 0, 0))
        attempt("seize", lambda: libc.ptrace(0x4206, pid, 0, 0))
        attempt("memory", lambda: open(f"/proc/{{pid}}/mem", "r+b").read(1))
        attempt("descriptors", lambda: os.listdir(f"/proc/{{pid}}/fd"))
    return 0
""",
    "limits are raised": f"""{_TRY}
import os, resource
def f(x):
    for name in ("AS", "CPU", "FSIZE", "NOFILE", "CORE"):
        kind = getattr(resource, "RLIMIT_" + name)
        soft, hard = resource.getrlimit(kind)
        attempt(name, lambda: (resource.setrlimit(kind, (hard, hard + 1)), "raised")[1])
        attempt(name, lambda: (resource.prlimit(os.getppid(), kind, (1, 1)), "set")[1])
    attempt("nice", lambda: (os.setpriority(os.PRIO_PROCESS, os.getppid(), 19), "set")[1])
    return 0
""",
    "privileges are taken back": f"""{_TRY}
import ctypes, os
libc = ctypes.CDLL(None)
def f(x):
    for name, action in (("chroot", lambda: os.chroot("/tmp")), ("mknod", lambda: os.mknod(
            "/tmp/mrp-hostile", 0o60600, os.makedev(8, 0))), ("mount", lambda: libc.mount(
            b"none", b"/tmp", b"proc", 0, 0) and 1 / 0), ("host", lambda: libc.sethostname(
            b"x", 1) and 1 / 0), ("kernel", lambda: open(
            "/proc/sys/kernel/core_pattern", "w").write("x")), ("disk", lambda: open(
            "/dev/sda", "rb").read(1))):
        attempt(name, lambda: (action(), "done")[1])
    return 0
""",
    "attributes of readable files are changed": f"""{_TRY}
import ctypes, fcntl, os, struct
def f(x):
    file = os.open(os.__file__, os.O_RDONLY)
    attempt("flags", lambda: fcntl.ioctl(file, 0x40086602, struct.pack("l", 0x80)) and "set")
    attempt("mode", lambda: (os.fchmod(file, 0o600), "set")[1])
    attempt("owner", lambda: (os.fchown(file, 0, 0), "set")[1])
    attempt("times", lambda: (os.utime(file, (1, 1)), "set")[1])
    attempt("attribute", lambda: (os.setxattr(file, "user.x", b"1"), "set")[1])
    return 0
""",
    "it asks to outlive its parent": f"""{_TRY}
import ctypes
libc = ctypes.CDLL(None)
def f(x):
    attempt("death signal", lambda: (libc.prctl(1, 0, 0, 0, 0) and 1 / 0, "reset")[1])
    attempt("dumpable", lambda: (libc.prctl(4, 1, 0, 0, 0) and 1 / 0, "set")[1])
    return 0
""",
    "the terminal is taken": f"""{_TRY}
import fcntl, os, termios
def f(x):
    for name in ("/dev/tty", "/dev/console", "/dev/pts/0"):
        attempt(name, lambda: fcntl.ioctl(os.open(name, os.O_RDWR), termios.TIOCSTI, b"x"))
    for number in range(3):
        attempt(str(number), lambda: fcntl.ioctl(number, termios.TIOCSTI, b"x"))
    return 0
""",
    "a message to the next program": f"""{_TRY}
import glob, os
def f(x):
    folders = ("/tmp", "/dev/shm", "/var/tmp", ".")
    for folder in folders:
        attempt("found", lambda: glob.glob(folder + "/mrp-hostile-message*")[0])
    for folder in folders:
        try: open(f"{{folder}}/mrp-hostile-message{{os.getpid()}}", "w").write("x")
        except OSError: pass
    return 0
""",
}

# What would go on for ever.
ENDLESS = {
    "a loop": "def f(x):\n    while True: pass",
    "a loop while loading": "while True: pass",
    "signals are ignored": """
import signal
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda *a: None)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
def f(x):
    while True:
        try: signal.pause()
        except BaseException: pass
""",
    "every exception is caught": """
def f(x):
    while True:
        try:
            while True: pass
        except BaseException: pass
        finally: continue
""",
    "a sleeping child": """
import os, subprocess, sys, time
def f(x):
    for start in (os.fork, lambda: subprocess.Popen([sys.executable, "-c", "input()"])):
        try: start()
        except OSError: pass
    time.sleep(60)
""",
    "an endless iterator": (
        "import itertools\ndef f(x):\n    yield from itertools.repeat(2)\n    while True: pass"
    ),
    "a regular expression": "import re\ndef f(x): return re.match('(a+)+$', 'a' * 64 + 'b')",
    "arithmetic without a break": "def f(x): return 7 ** 7 ** 9",
    "a lock that nobody opens": (
        "import threading\ndef f(x):\n    lock = threading.Lock()\n    lock.acquire()\n"
        "    lock.acquire()"
    ),
    "threads that never end": """
import threading, time
def f(x):
    for _ in range(5): threading.Thread(target=lambda: time.sleep(99)).start()
    time.sleep(99)
""",
    "an exit that waits for its threads": """
import sys, threading, time
def spin():
    while True: pass
def f(x):
    threading.Thread(target=spin).start()
    time.sleep(99)
""",
    "a question that is never answered": (
        "import sys, time\ndef f(x):\n    sys.stdin.read()\n    time.sleep(99)"
    ),
    "half a message": """
import os, time
def f(x):
    for number in range(3, 21):
        try: os.write(number, b'{"value": ')
        except OSError: pass
    time.sleep(99)
""",
}

# Too much of something.
EXPLOSIONS = {
    "a fork bomb": """
import os
def f(x):
    # Bounded, so that it ends even where nothing contains it: 2^4 processes at most.
    for _ in range(4):
        try: os.fork(); print("ESC" + "APED")
        except OSError: pass
    return 0
""",
    "memory at once": "def f(x): return bytearray(1 << 31)",
    "memory bit by bit": "def f(x): return [[0] * 10**6 for _ in range(10**4)]",
    "mapped memory": """
import mmap
def f(x):
    maps = []
    for _ in range(64): maps.append(mmap.mmap(-1, 1 << 28))
    print("ESC" + "APED")
""",
    "a file system in memory is filled": """
def f(x):
    written = 0
    for folder in ("/tmp", "/dev/shm", "/", "/dev", "/var/tmp"):
        for number in range(9):
            try:
                with open(f"{folder}/mrp-hostile-{number}", "wb") as file:
                    written += file.write(bytes(8_000_000))
            except OSError: pass
    if written > 20_000_000: print("ESC" + "APED")
    return 0
""",
    "all inodes": """
def f(x):
    made = 0
    for number in range(10**6):
        try: open(f"/tmp/mrp-hostile-{number}", "w").close(); made += 1
        except OSError: break
    return 0
""",
    "endless output": "def f(x):\n    while True: print('x' * 100_000)",
    "endless output past Python": (
        "import os\ndef f(x):\n    while True: os.write(2, b'x' * 65536)"
    ),
    "an endless message to the judge": """
import os
def f(x):
    while True:
        for number in range(3, 21):
            try: os.write(number, b"[" * 65536)
            except OSError: pass
""",
    "a huge number": "def f(x): return 1 << 10**9",
    "a long number as text": "def f(x): return str(10 ** 10**6)",
    "a fraction that explodes in the judge": """
import os
def f(x):
    for number in range(3, 21):
        try: os.write(number, b'{"value": {"t": "fraction", "v": "1e999999999"}}\\n')
        except OSError: pass
    return 0
""",
    "a number that explodes when compared": (
        "from decimal import Decimal\ndef f(x): return Decimal('1e999999999999999999')"
    ),
    "keys that collide": "def f(x): return {(2**61 - 1) * n: 0 for n in range(1, 60_000)}",
    "a result nested without end": """
def f(x):
    nested = []
    for _ in range(10**6): nested = [nested]
    return nested
""",
    "a result that holds itself": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "a result of a hundred megabytes": "def f(x): return ['x' * 100] * 10**6",
    "a million objects": "def f(x): return [object() for _ in range(10**6)]",
    "thousands of threads": """
import threading, time
def f(x):
    for _ in range(10**4):
        try: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
        except RuntimeError: break
    return 0
""",
    "all descriptors": """
def f(x):
    files = []
    while True:
        try: files.append(open("/dev/null"))
        except OSError: break
    if len(files) > 99: print("ESC" + "APED")
    return 0
""",
    "source nested without end": "def f(x): return " + "(" * 50_000,
    "source that is one long expression": "def f(x): return " + "1+" * 100_000 + "1",
    "a class of a million attributes": (
        "def f(x):\n    return type('Big', (), {f'a{n}': n for n in range(10**6)})()"
    ),
}
