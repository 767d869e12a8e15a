"""What the kernel refuses to code in a sandbox, by a filter or by limits of its folder."""

import re
import subprocess
import sys
import time

import pytest

from pgax.sandbox import LEVELS, Limits, Process, available, isolation_report
from pgax.sandbox.system_calls import call_number

LIMITS = Limits(seconds=10.0)


@pytest.fixture(params=[level for level in LEVELS if available(level)])
def level(request):
  return request.param


CALLS = """
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None)
parent = os.getppid()
calls = {
  "shmget": lambda: libc.shmget(0, 4096, 0o1600),
  "shmget of a key": lambda: libc.shmget(12345, 4096, 0o1666),
  "semget": lambda: libc.semget(0, 1, 0o1600),
  "msgget": lambda: libc.msgget(0, 0o1600),
  "mq_open": lambda: libc.syscall(KEYS["mq_open"], b"x", 0o102, 0o600, None),
  "memfd_create": lambda: libc.memfd_create(b"x", 0),
  "keyctl": lambda: libc.syscall(KEYS["keyctl"], 0, -3, 0),
  "user's keys": lambda: libc.syscall(KEYS["keyctl"], 0, -4, 0),
  "add_key": lambda: libc.syscall(KEYS["add_key"], b"user", b"x", b"y", 1, -4),
  "ptrace": lambda: libc.ptrace(0, 0, 0, 0),
  "read memory": lambda: libc.process_vm_readv(parent, None, 0, None, 0, 0),
  "unshare": lambda: libc.unshare(0x10000000),
  "mount": lambda: libc.mount(b"none", b"/", b"tmpfs", 0, None),
  "umount": lambda: libc.umount2(b"/", 2),
  "chroot": lambda: libc.chroot(b"."),
  "fork": libc.fork,
  "vfork": lambda: libc.syscall(KEYS["vfork"]),
  "exec": lambda: libc.execv(b"/bin/true", None),
  "setsid": libc.setsid,
  "setpgid": lambda: libc.setpgid(0, 0),
  "signal to all": lambda: libc.kill(-1, 0),
  "signal to 1": lambda: libc.kill(1, 0),
  "signal to the parent": lambda: libc.kill(parent, 0),
  "signal to the group": lambda: libc.kill(0, 0),
  "signal by a file": lambda: libc.fcntl(0, 8, parent),
  "signal by a handle": lambda: libc.syscall(KEYS["pidfd_open"], parent, 0),
  "parent's limits": lambda: libc.prlimit(parent, 7, None, ctypes.create_string_buffer(16)),
  "parent's priority": lambda: libc.setpriority(0, parent, 19),
  "outlive the parent": lambda: libc.prctl(1, 0, 0, 0, 0),
  "socket": lambda: libc.socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0),
  "netlink": lambda: libc.socket(16, 3, 0),
  "io_uring": lambda: libc.syscall(KEYS["io_uring_setup"], 1, None),
  "bpf": lambda: libc.syscall(KEYS["bpf"], 0, None, 0),
  "perf": lambda: libc.syscall(KEYS["perf_event_open"], None, 0, -1, -1, 0),
  "userfaultfd": lambda: libc.syscall(KEYS["userfaultfd"], 1),
  "file handle": lambda: libc.syscall(KEYS["open_by_handle_at"], 0, None, 0),
  "root": lambda: libc.setuid(0) if os.getuid() else -1,
}
def succeeds(call):
  ctypes.set_errno(0)
  return call() >= 0
print([name for name, call in calls.items() if succeeds(call)])
os.kill(os.getpid(), 0)
socket.socketpair()
print(libc.prlimit(0, 7, None, ctypes.create_string_buffer(16)), libc.syscall(2**30))
"""


def test_calls_that_reach_beyond_the_program_are_refused(level):
  if not isolation_report(level).new_processes:
    return
  numbers = {name: call_number(name) for name in re.findall(r'KEYS\["(\w+)"', CALLS)}
  code = f"KEYS = {numbers}\n{CALLS}"
  with Process({"role": "script", "code": code}, LIMITS, level) as process:
    assert process.wait(time.monotonic() + 5) == 0
    assert process.output() == "[]\n0 -1\n"


def test_a_new_session_keyring_replaces_the_old_one():
  code = "import ctypes\nfrom pgax.sandbox.system_calls import call_number, leave_keyring\n"
  code += "ask = lambda: ctypes.CDLL(None).syscall(call_number('keyctl'), 0, -3, 0)\n"
  code += "old = ask()\nleave_keyring()\nprint(old, ask())"
  old, new = subprocess.check_output([sys.executable, "-c", code]).split()
  assert old != new or old == b"-1"  # without keyrings, there is nothing to leave


def test_the_number_of_files_is_limited(level):
  if level == "limits":
    assert "number of files in the sandbox's folder is not" in str(isolation_report(level))
    return
  code = "import os\nn = 0\ntry:\n  while n < 2000:\n    os.mkdir(str(n))\n    n += 1\n"
  code += "except OSError: pass\nfor place in ('/dev/shm', '/dev', '/tmp', '/'):\n  try:\n"
  code += "    os.mkdir(place + '/x')\n    n = -1\n  except OSError: pass\nprint(n)"
  with Process({"role": "script", "code": code}, LIMITS, level) as process:
    assert process.wait(time.monotonic() + 5) == 0
    assert 500 < int(process.output()) < 1024
