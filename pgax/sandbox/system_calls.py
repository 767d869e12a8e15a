"""Refuses the system calls that programs do not need, by a filter in the kernel (seccomp).

Without new processes, the limits on the memory and the processor time of one process are
limits on everything that the code does. What is refused besides is shared by all programs
of a user or of the machine: keys, System V memory, signals to other processes, sockets,
mounts. The filter works without privileges at every isolation level.
"""

import ctypes
import errno
import os
import struct
import sys

_libc = ctypes.CDLL(None, use_errno=True)
_SET_FILTER, _MODE = 22, 2  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
# Classic BPF: load a word; jump if equal, if not smaller, if a bit is set; return.
_LOAD, _EQUAL, _AT_LEAST, _BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in `struct seccomp_data`
_THREAD = 0x00010000  # CLONE_THREAD

# Audit names of the architectures, and the numbers of the calls of each name below.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Calls that are always refused: their numbers on x86_64 and on aarch64.
_REFUSED = {
  "shmget": (29, 194),
  "shmat": (30, 196),
  "shmctl": (31, 195),
  "semget": (64, 190),
  "semop": (65, 193),
  "semctl": (66, 191),
  "semtimedop": (220, 192),
  "msgget": (68, 186),
  "msgsnd": (69, 189),
  "msgrcv": (70, 188),
  "msgctl": (71, 187),
  "mq_open": (240, 180),
  "mq_unlink": (241, 181),
  "add_key": (248, 217),
  "request_key": (249, 218),
  "keyctl": (250, 219),
  "memfd_create": (319, 279),
  "memfd_secret": (447, 447),
  "fork": (57, None),
  "vfork": (58, None),
  "execve": (59, 221),
  "execveat": (322, 281),
  "setpgid": (109, 154),
  "setsid": (112, 157),
  "socket": (41, 198),
  "ptrace": (101, 117),
  "process_vm_readv": (310, 270),
  "process_vm_writev": (311, 271),
  "kcmp": (312, 272),
  "tkill": (200, 130),
  "rt_sigqueueinfo": (129, 138),
  "rt_tgsigqueueinfo": (297, 240),
  "pidfd_send_signal": (424, 424),
  "pidfd_open": (434, 434),
  "pidfd_getfd": (438, 438),
  "process_madvise": (440, 440),
  "process_mrelease": (448, 448),
  "setpriority": (141, 140),
  "ioprio_set": (251, 30),
  "sched_setparam": (142, 118),
  "sched_setscheduler": (144, 119),
  "sched_setaffinity": (203, 122),
  "sched_setattr": (314, 274),
  "migrate_pages": (256, 238),
  "move_pages": (279, 239),
  "bpf": (321, 280),
  "userfaultfd": (323, 282),
  "perf_event_open": (298, 241),
  "io_uring_setup": (425, 425),
  "io_uring_enter": (426, 426),
  "io_uring_register": (427, 427),
  "unshare": (272, 97),
  "setns": (308, 268),
  "mount": (165, 40),
  "umount2": (166, 39),
  "pivot_root": (155, 41),
  "chroot": (161, 51),
  "open_tree": (428, 428),
  "move_mount": (429, 429),
  "fsopen": (430, 430),
  "fsconfig": (431, 431),
  "fsmount": (432, 432),
  "fspick": (433, 433),
  "mount_setattr": (442, 442),
  "name_to_handle_at": (303, 264),
  "open_by_handle_at": (304, 265),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_JOIN_KEYRING = 1  # KEYCTL_JOIN_SESSION_KEYRING
# Calls whose argument 0 is a process that must be this one; 0 means this one too.
_OWN = {"tgkill": (234, 131), "prlimit64": (302, 261), "kill": (62, 129)}
# Calls that are refused for some values of one argument: numbers, argument, values.
_REFUSED_VALUES = {
  "prctl": ((157, 167), 0, (1,)),  # PR_SET_PDEATHSIG
  "fcntl": ((72, 25), 1, (8, 10, 15)),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
  # FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX
  "ioctl": ((16, 29), 1, (0x8901, 0x8902, 0x5412, 0x541C)),
}


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
  return struct.pack("=HBBI", code, yes, no, value & 0xFFFFFFFF)


def _argument(index: int) -> bytes:
  return _step(_LOAD, 16 + 8 * index)  # the lower half: both machines are little-endian


def _rule(number: int, *steps: bytes) -> bytes:
  """Returns a program that runs the steps, which must return, for one system call."""
  return _step(_EQUAL, number, no=len(steps)) + b"".join(steps)


def _program(machine: str, process: int) -> bytes:
  """Returns the filter as classic BPF."""
  name, column = _MACHINES[machine]
  allow, refuse = _step(_RETURN, _ALLOW), _step(_RETURN, _REFUSE | errno.EPERM)
  program = _step(_LOAD, _ARCHITECTURE) + _step(_EQUAL, name, yes=1) + refuse
  program += _step(_LOAD, _NUMBER)
  program += _step(_AT_LEAST, 0x40000000, no=1) + refuse  # calls with 32-bit pointers
  for numbers in _REFUSED.values():
    if (number := numbers[column]) is not None:
      program += _rule(number, refuse)
  # Its arguments are out of reach of a filter; the C library then calls `clone`.
  program += _rule(_CLONE3[column], _step(_RETURN, _REFUSE | errno.ENOSYS))
  thread = _step(_BIT, _THREAD, no=1)
  program += _rule(_CLONE[column], _argument(0), thread, allow, refuse)
  for call, numbers in _OWN.items():
    zero = _step(_EQUAL, 0, yes=1) if call == "prlimit64" else _step(_EQUAL, process, yes=1)
    own = _step(_EQUAL, process, no=1)
    program += _rule(numbers[column], _argument(0), zero, own, allow, refuse)
  for numbers, index, values in _REFUSED_VALUES.values():
    tests = [_step(_EQUAL, value, yes=len(values) - i) for i, value in enumerate(values)]
    program += _rule(numbers[column], _argument(index), *tests, allow, refuse)
  return program + allow


def _machine() -> str:
  """Returns the architecture of this interpreter; "" if its calls are not known."""
  machine = os.uname().machine
  known = sys.platform == "linux" and sys.maxsize > 2**32 and machine in _MACHINES
  return machine if known else ""


def call_number(name: str) -> int:
  """Returns the number of a refused system call on this machine; -1 if it is not known."""
  machine = _machine()
  number = _REFUSED[name][_MACHINES[machine][1]] if machine else None
  return -1 if number is None else number


def leave_keyring() -> None:
  """Joins a new session keyring, so that the keys of the caller's session are out of reach.

  Nothing happens where the system refuses keyrings or their number is used up.
  """
  if (number := call_number("keyctl")) >= 0:
    _libc.syscall(ctypes.c_long(number), ctypes.c_long(_JOIN_KEYRING), None)


def restrict_calls() -> bool:
  """Refuses system calls to the calling process and to all of its threads, for good.

  The process must have given up gaining privileges, as `drop_privileges` does.

  Returns:
    Whether the filter is in force; False on other machines and on kernels without it.
  """
  machine = _machine()
  if not machine:
    return False
  program = _program(machine, os.getpid())
  buffer = ctypes.create_string_buffer(program, len(program))
  # struct sock_fprog
  header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
  return _libc.prctl(_SET_FILTER, _MODE, ctypes.c_char_p(header), 0, 0) == 0
