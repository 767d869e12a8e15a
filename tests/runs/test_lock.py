"""The lock of a folder: one writer at a time, and free again after any death."""

import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from pgax.errors import UserError
from pgax.runs.lock import LOCK, FolderLock, check_unlocked, is_shared
from tests.waiting import eventually

_BEAT = 0.05
_HOLD = f"""
import sys
from pathlib import Path
from pgax.runs.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]), shared=sys.argv[2] == "shared", beat_seconds={_BEAT})
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@contextmanager
def holder(folder, kind):
  """Another process that holds the lock until its standard input is closed."""
  command = [sys.executable, "-c", _HOLD, str(folder), kind]
  with subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as process:
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()


def lock_of(folder, kind):
  return FolderLock(folder, shared=kind == "shared", beat_seconds=_BEAT)


@pytest.mark.parametrize("kind", ["local", "shared"])
def test_the_second_is_refused_until_the_first_ends(tmp_path, kind):
  with holder(tmp_path, kind) as process:
    message = f"in use by process {process.pid} on {socket.gethostname()}"
    for _ in range(2):
      with pytest.raises(UserError, match=message):
        lock_of(tmp_path, kind)
    with pytest.raises(UserError, match=message):
      check_unlocked(tmp_path)
    process.stdin.close()
    assert process.wait() == 0
  assert not (tmp_path / LOCK).exists()
  lock_of(tmp_path, kind).release()


@pytest.mark.parametrize("kind", ["local", "shared"])
def test_a_killed_holder_holds_nothing(tmp_path, kind):
  with holder(tmp_path, kind) as process:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
  assert (tmp_path / LOCK).exists()
  check_unlocked(tmp_path)
  with lock_of(tmp_path, kind) as lock:
    lock.check()
    with pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
      lock_of(tmp_path, kind)
  assert list(tmp_path.iterdir()) == []


def _write(path, beats, process=1):
  path.write_text(
    json.dumps(
      {"host": "elsewhere", "boot": "x", "process": process, "token": "t", "beats": beats}
    )
  )


def test_a_holder_on_another_host_is_alive_while_it_writes(tmp_path, monkeypatch):
  beats = 0

  def beat(seconds):
    nonlocal beats
    beats += 1
    _write(tmp_path / LOCK, beats)

  beat(0)
  monkeypatch.setattr("pgax.runs.lock.time.sleep", beat)
  with pytest.raises(UserError, match="in use by process 1 on elsewhere"):
    lock_of(tmp_path, "shared")


def test_a_silent_holder_on_another_host_is_dead(tmp_path):
  _write(tmp_path / LOCK, 7)
  lock_of(tmp_path, "shared").release()


def test_of_two_that_take_over_together_one_wins(tmp_path, monkeypatch):
  monkeypatch.setattr("pgax.runs.lock.time.sleep", lambda _: _write(tmp_path / LOCK, 1, 9))
  with pytest.raises(UserError, match="in use by process 9 on elsewhere"):
    lock_of(tmp_path, "shared")


def test_whoever_lost_the_lock_stops_writing(tmp_path):
  with lock_of(tmp_path, "shared") as lock:
    _write(tmp_path / LOCK, 1, process=5)

    def is_lost():
      try:
        lock.check()
      except UserError:
        return True
      return False

    assert eventually(is_lost)
    with pytest.raises(UserError, match="process 5 on elsewhere took the folder over"):
      lock.check()
  assert (tmp_path / LOCK).exists()  # it is the other one's now


@pytest.mark.parametrize("kind", ["local", "shared"])
def test_a_file_that_was_removed_is_restored(tmp_path, kind):
  with lock_of(tmp_path, kind) as lock:
    (tmp_path / LOCK).unlink()
    lock.check()
    with pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
      lock_of(tmp_path, kind)
    lock.check()
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["local", "shared"])
def test_of_two_holders_after_a_removal_the_first_stops(tmp_path, kind):
  first = lock_of(tmp_path, kind)
  (tmp_path / LOCK).unlink()
  with lock_of(tmp_path, kind) as second:
    with pytest.raises(UserError, match="took the folder over, as .* was removed"):
      first.check()
    first.release()
    second.check()
    assert (tmp_path / LOCK).exists()  # the first one left it alone


@pytest.mark.parametrize("kind", ["local", "shared"])
def test_a_fork_that_fails_releases_nothing(tmp_path, kind):
  with lock_of(tmp_path, kind) as lock:
    with warnings.catch_warnings(action="ignore"):  # JAX has threads
      process = os.fork()
    if not process:
      lock.release()
      os._exit(0)
    os.waitpid(process, 0)
    assert (tmp_path / LOCK).exists()
    lock.check()


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"process": "x"}', "\0\xff"])
def test_any_content_left_behind_is_taken_over(tmp_path, text):
  for kind in ("local", "shared"):
    (tmp_path / LOCK).write_text(text)
    lock_of(tmp_path, kind).release()


MOUNTS = """/dev/sda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb /home/local\\040disk xfs rw 0 0
bucket /gcs fuse.gcsfuse rw 0 0
"""


@pytest.mark.parametrize(
  ("folder", "shared"),
  [
    ("/", False),
    ("/tmp/run", False),
    ("/home", True),
    ("/home/me/run", True),
    ("/homework/run", False),
    ("/home/local disk/run", False),
    ("/gcs/a/b", True),
  ],
)
def test_file_systems_of_several_hosts(folder, shared):
  assert is_shared(Path(folder), MOUNTS) == shared


def test_this_file_system_is_found_out(tmp_path):
  assert is_shared(tmp_path) in (True, False)
  FolderLock(tmp_path, beat_seconds=_BEAT).release()
