"""Isolates the calling process by Linux system calls, made through ctypes.

The functions run in a single-threaded process that exists only for this purpose. This file
imports only the standard library, because the programs of the sandbox run in a bare
interpreter.
"""

import ctypes
import os
import resource
import stat
import sys

_libc = ctypes.CDLL(None, use_errno=True)

# <linux/sched.h>, <sys/mount.h>, <sys/prctl.h>, <linux/capability.h>
_NEW_MOUNTS, _NEW_CGROUPS, _NEW_NAMES = 0x00020000, 0x02000000, 0x04000000
_NEW_IPC, _NEW_USERS, _NEW_PROCESSES, _NEW_NETWORK = (
  0x08000000,
  0x10000000,
  0x20000000,
  0x40000000,
)
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 32, 4096, 16384, 1 << 18
_DETACH = 2
_DIE_WITH_PARENT, _DUMPABLE, _KEEP_CAPABILITIES, _NO_NEW_PRIVILEGES = 1, 4, 8, 38
READ_ALL, KILL = 1 << 2, 1 << 5  # CAP_DAC_READ_SEARCH, CAP_KILL
_CAPABILITY_VERSION = 0x20080522
# The working folder inside the sandbox. It hides any outside folder of the same name.
FOLDER = "/pgax-sandbox"
_MAX_FILES = 1024
_STACK = 64 * 2**20
_MAX_ARENAS = -8  # M_ARENA_MAX of <malloc.h>
# A user that owns nothing. Each sandbox has its own, because process limits count by user.
_FIRST_USER, _NOBODY = 1_900_000_000, 65534
# Mount flags that a user namespace cannot remove, keyed by the names of `statvfs` flags.
_LOCKED = {
  "ST_NOSUID": _NO_SUID,
  "ST_NODEV": _NO_DEVICES,
  "ST_NOEXEC": _NO_EXEC,
  "ST_NOATIME": 1024,
  "ST_NODIRATIME": 2048,
  "ST_RELATIME": 1 << 21,
}


def _check(result: int, call: str) -> None:
  if result:
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}")


def _control(option: int, value: int) -> None:
  if sys.platform == "linux":
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def die_with_parent() -> None:
  """Has the calling process killed when the thread that started it ends."""
  _control(_DIE_WITH_PARENT, 9)


def hide_memory() -> None:
  """Prevents processes of the same user from tracing or reading the calling process."""
  _control(_DUMPABLE, 0)


def unshare() -> bool:
  """Enters new namespaces of every kind, in which processes forked later are alone.

  Returns:
    Whether the process entered a user namespace as well. Root does not need one to create
    the others and becomes another user instead.

  Raises:
    OSError: if the system does not allow this.
  """
  kinds = _NEW_MOUNTS | _NEW_CGROUPS | _NEW_NAMES | _NEW_IPC | _NEW_PROCESSES | _NEW_NETWORK
  if os.geteuid() == 0 and _libc.unshare(kinds) == 0:
    return False
  user, group = os.geteuid(), os.getegid()
  _check(_libc.unshare(kinds | _NEW_USERS), "unshare")
  _write("/proc/self/setgroups", "deny")
  _write("/proc/self/uid_map", f"{user} {user} 1")
  _write("/proc/self/gid_map", f"{group} {group} 1")
  return True


def _write(path: str, text: str) -> None:
  with open(path, "w") as file:
    file.write(text)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
  arguments = [x.encode() if x else None for x in (source, target, kind)]
  result = _libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None)
  _check(result, f"mount {source} on {target}")


def _bind(root: str, path: str) -> None:
  """Makes a file or folder available under the new root, read-only."""
  target = root + path
  if os.path.isdir(path):
    os.makedirs(target, exist_ok=True)
  else:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    _write(target, "")
  _mount(path, target, None, _BIND | _RECURSIVE)
  if path.startswith("/dev/"):
    return
  current_flags = os.statvfs(target).f_flag
  locked_flags = 0
  for name, flag in _LOCKED.items():
    locked_flags |= flag if current_flags & getattr(os, name) else 0
  flags = _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES | locked_flags
  _mount("none", target, None, flags)


def change_root(disk: int) -> None:
  """Enters a new file system with Python, system libraries and an empty folder.

  The working directory becomes `FOLDER`.

  Args:
    disk: number of bytes that can be written in `FOLDER`.
  """
  # Any folder serves that nothing is bound from; other processes see no change in it.
  root = "/proc"
  _mount("none", "/", None, _RECURSIVE | _PRIVATE)
  options = f"size={_input_size()},mode=755"
  _mount("tmpfs", root, "tmpfs", _NO_SUID | _NO_DEVICES, options)
  for name in ("lib", "lib64", "bin"):
    path = f"/{name}"
    if os.path.islink(path):
      os.symlink(os.readlink(path), root + path)
    elif os.path.isdir(path):
      _bind(root, path)
  python = os.path.realpath(sys.base_prefix)
  for path in ("/usr", *([] if python.startswith("/usr/") else [python])):
    if path != "/":
      _bind(root, path)
  for name in ("null", "zero", "urandom"):
    _bind(root, f"/dev/{name}")
  _add_devices(root)
  if python != sys.base_prefix and not os.path.exists(root + sys.base_prefix):
    os.makedirs(os.path.dirname(root + sys.base_prefix), exist_ok=True)
    os.symlink(python, root + sys.base_prefix)
  os.mkdir(root + FOLDER)
  _mount("tmpfs", root + FOLDER, "tmpfs", _NO_SUID | _NO_DEVICES, _size(disk))
  _mount("none", root, None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES)
  os.chdir(root)
  _check(_libc.pivot_root(b".", b"."), "pivot_root")
  _check(_libc.umount2(b".", _DETACH), "umount")
  os.chdir(FOLDER)


def _size(disk: int) -> str:
  return f"size={disk},nr_inodes={_MAX_FILES},mode=777"


def finish_bubblewrap(disk: int) -> None:
  """Does what bubblewrap cannot: limits the number of files and provides more devices.

  Args:
    disk: number of bytes that can be written in `FOLDER`.
  """
  flags = _REMOUNT | _NO_SUID | _NO_DEVICES
  _mount("none", FOLDER, None, flags, _size(disk))
  _mount("none", "/dev", None, flags, f"size={_input_size()}")
  _add_devices("")
  _mount("none", "/dev", None, flags | _READ_ONLY)
  os.chdir(FOLDER)


def _input_size() -> int:
  """Returns the bytes that a file system needs for the standard input and small files."""
  return 2**20 + os.fstat(0).st_size


def _add_devices(root: str) -> None:
  """Provides `/dev/stdin` as a file, and `/dev/shm`, which locks of thread pools need."""
  os.symlink(FOLDER, f"{root}/dev/shm")  # so that its files count too
  with open(f"{root}/dev/stdin", "wb") as file:
    file.write(os.pread(0, os.fstat(0).st_size, 0))


def set_limits(
  cpu_seconds: int, memory: int, file_size: int, processes: int, open_files: int
) -> None:
  """Sets hard limits of the calling process and of every process that it starts.

  Args:
    cpu_seconds: processor time of a process, in seconds.
    memory: address space of a process, in bytes.
    file_size: size of a file, in bytes.
    processes: number of the user's processes and threads; root is exempt.
    open_files: number of file descriptors that a process has open at once.
  """
  limits = {
    resource.RLIMIT_CPU: cpu_seconds,
    resource.RLIMIT_AS: memory,
    resource.RLIMIT_FSIZE: file_size,
    resource.RLIMIT_NPROC: processes,
    resource.RLIMIT_NOFILE: open_files,
    resource.RLIMIT_CORE: 0,
  }
  for kind, value in limits.items():
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
  # Deep recursion of honest code needs a large stack, and each new heap of the C library
  # reserves 64 MiB, which would soon use up the address space of code with many threads.
  _, hard = resource.getrlimit(resource.RLIMIT_STACK)
  stack = _STACK if hard == resource.RLIM_INFINITY else min(_STACK, hard)
  resource.setrlimit(resource.RLIMIT_STACK, (stack, hard))
  if sys.platform == "linux" and hasattr(_libc, "mallopt"):
    _libc.mallopt(_MAX_ARENAS, 1)


def drop_privileges(user: int, kept: int = 0) -> None:
  """Drops all capabilities but a few; root becomes a user that owns nothing.

  Args:
    user: number that distinguishes this sandbox's user from those of other sandboxes. If
      it is negative, root stays root.
    kept: capabilities that a process of root keeps if it has them: `READ_ALL` if other
      users cannot read Python's own files; `KILL` if the death of this process must end
      one of another user.
  """
  _control(_NO_NEW_PRIVILEGES, 1)
  header, data = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
  if kept and os.geteuid() == 0:
    _check(_libc.capget(header, data), "capget")
  kept &= data[1]  # those that are permitted
  if os.geteuid() == 0 and user >= 0:
    _control(_KEEP_CAPABILITIES, int(kept != 0))
    os.setgroups([])
    try:
      _become(_FIRST_USER + user)
    except OSError:  # the container maps only a range of users
      _become(_NOBODY)
  if sys.platform == "linux":
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept)), "capset")


def _become(user: int) -> None:
  os.setresgid(user, user, user)
  os.setresuid(user, user, user)


def readable_by_others(path: str) -> bool:
  """Returns whether the modes of a file and of its folders let every user read it."""
  path = os.path.realpath(path)
  if not os.stat(path).st_mode & stat.S_IROTH:
    return False
  while path != "/":
    path = os.path.dirname(path)
    if not os.stat(path).st_mode & stat.S_IXOTH:
      return False
  return True


def other_tasks() -> int:
  """Returns an upper bound of the processes and threads of this user, without walking them.

  The limit on their number counts all of the user's, so it must leave room for these.
  """
  if os.geteuid() == 0:  # becomes a user of its own
    return 0
  try:
    with open("/proc/loadavg") as file:
      return int(file.read().split()[3].partition("/")[2])
  except (OSError, ValueError, IndexError):
    return 0
