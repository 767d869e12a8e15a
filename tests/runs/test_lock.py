"""The lock of a folder: one writer at a time, and free again after any death."""

import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager

import pytest

from pgax.errors import UserError
from pgax.runs.lock import LOCK, FolderLock, check_unlocked

_LEASE = 0.4
_HOLD = f"""
import sys
from pathlib import Path
from pgax.runs.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]), {_LEASE})
print("held", flush=True)
sys.stdin.read()
lock.release()
"""
_ELSEWHERE = """filelock/2
pid=1
host=elsewhere
mode=lease
token=4ad270ba7e13b58f5c888618c1759be8
duration={duration}
start=1
"""


@contextmanager
def holder(folder):
  """Another process that holds the lock until its standard input is closed."""
  command = [sys.executable, "-c", _HOLD, str(folder)]
  with subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as process:
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()


def write(folder, duration=_LEASE):
  """Writes the claim of a process on another host."""
  (folder / LOCK).write_text(_ELSEWHERE.format(duration=float(duration)))
  (folder / LOCK).chmod(0o644)


def test_the_second_is_refused_until_the_first_ends(tmp_path):
  with holder(tmp_path) as process:
    message = f"in use by process {process.pid} on {socket.gethostname()}"
    for _ in range(2):
      with pytest.raises(UserError, match=message):
        FolderLock(tmp_path, _LEASE)
    with pytest.raises(UserError, match=message):
      check_unlocked(tmp_path)
    process.stdin.close()
    assert process.wait() == 0
  assert not (tmp_path / LOCK).exists()
  FolderLock(tmp_path, _LEASE).release()


def test_a_killed_holder_holds_nothing(tmp_path):
  with holder(tmp_path) as process:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
  assert (tmp_path / LOCK).exists()
  check_unlocked(tmp_path)
  with FolderLock(tmp_path, _LEASE) as lock:
    lock.check()
    with pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
      FolderLock(tmp_path, _LEASE)
  assert list(tmp_path.iterdir()) == []


def test_a_suspended_process_of_this_host_keeps_the_folder(tmp_path):
  with holder(tmp_path) as process:
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2 * _LEASE)
    with pytest.raises(UserError, match=f"in use by process {process.pid} on"):
      FolderLock(tmp_path, _LEASE)


def test_a_silent_holder_on_another_host_is_dead(tmp_path):
  write(tmp_path)
  check_unlocked(tmp_path)  # of this host alone
  with FolderLock(tmp_path, _LEASE) as lock:
    lock.check()


def test_whoever_lost_the_lock_stops_writing(tmp_path):
  with FolderLock(tmp_path) as lock:
    (tmp_path / LOCK).unlink()
    write(tmp_path, 60)
    with pytest.raises(UserError, match="process 1 on elsewhere took over the folder"):
      lock.check()
  assert (tmp_path / LOCK).exists()  # it is the other one's now


def test_a_file_that_was_removed_is_restored(tmp_path):
  with FolderLock(tmp_path) as lock:
    (tmp_path / LOCK).unlink()
    lock.check()
    with pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
      FolderLock(tmp_path)
    lock.check()
  assert list(tmp_path.iterdir()) == []


def test_of_two_holders_after_a_removal_the_first_stops(tmp_path):
  first = FolderLock(tmp_path)
  (tmp_path / LOCK).unlink()
  with FolderLock(tmp_path) as second:
    with pytest.raises(UserError, match="took over the folder: .* was removed"):
      first.check()
    first.release()
    second.check()
    assert (tmp_path / LOCK).exists()  # the first one left it alone


def test_a_fork_that_fails_releases_nothing(tmp_path):
  with FolderLock(tmp_path) as lock:
    with warnings.catch_warnings(action="ignore"):  # JAX has threads
      process = os.fork()
    if not process:
      lock.release()
      os._exit(0)
    os.waitpid(process, 0)
    assert (tmp_path / LOCK).exists()
    lock.check()


@pytest.mark.parametrize("text", ["", "{", "\0\xff"])
def test_any_content_left_behind_is_taken_over(tmp_path, text):
  (tmp_path / LOCK).write_text(text)
  FolderLock(tmp_path, _LEASE).release()
