"""Folders of sandboxes: whatever code leaves in them, and whoever is killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pgax.rewards.code import Code
from pgax.sandbox import Limits, available
from pgax.sandbox.folder import remove, remove_stale, sandbox_folder
from tests.waiting import eventually

DEEP = """
import os
for _ in range({depth}):
  os.mkdir("a" * 100)
  open("file", "w").close()
  os.chdir("a" * 100)
"""


def folders():
  return sorted(Path(tempfile.gettempdir()).glob("pgax-sandbox-*"))


@pytest.fixture
def temporary(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  remove_stale.cache_clear()
  return tmp_path


def test_nested_folders_are_removed(temporary, monkeypatch, request):
  if os.access("/dev/shm", os.W_OK):  # a file system in memory is many times as fast
    memory = tempfile.TemporaryDirectory(dir="/dev/shm")
    request.addfinalizer(memory.cleanup)
    monkeypatch.setattr(tempfile, "tempdir", memory.name)
  code = DEEP.format(depth=3000) + "print(1)"
  reward = Code(Limits(seconds=20.0), isolation="limits")
  case = {"input": "", "output": "1"}
  assert reward("", code, "", {"cases": [case]})["reward"] == 1.0
  assert not folders()


@pytest.mark.parametrize(
  "code",
  [
    "import os\nos.makedirs('a/b/c')\nopen('a/b/f', 'w')\nos.chmod('a/b', 0)\n"
    "os.chmod('a', 0)",
    "import os\nos.symlink('/', 'a')\nos.symlink('a', 'b')\nos.mkdir('c')\n"
    "os.symlink('c', 'c/d')",
    "import os\nos.mkdir('a')\nos.chmod('.', 0)",
    "import os\nos.mkfifo('a')\nos.link('a', 'b')\nfor i in range(300): os.mkdir(str(i))",
  ],
)
def test_odd_folders_are_removed(code, temporary):
  folder = temporary / "pgax-sandbox-x"
  folder.mkdir()
  (temporary / "outside").write_text("x")
  subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
  remove(str(folder))
  assert not folder.exists() and (temporary / "outside").exists()


def test_removing_what_is_not_there_is_no_error(temporary):
  remove(str(temporary / "absent"))
  (temporary / "file").write_text("x")
  remove(str(temporary / "file"))
  assert (temporary / "file").exists()


@pytest.mark.parametrize("level", ["namespaces", "bubblewrap"])
def test_other_levels_leave_no_folder_even_while_they_run(level, temporary):
  if available(level):
    code = f"import os\nprint({str(temporary)!r} in os.getcwd())"
    case = {"input": "", "output": "False"}
    reward = Code(Limits(seconds=10.0), isolation=level)
    assert reward("", code, "", {"cases": [case]})["reward"] == 1.0
    assert not list(temporary.iterdir())


KILLED = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from pgax.sandbox.folder import sandbox_folder
with sandbox_folder() as folder:
  print(folder, flush=True)
  time.sleep(60)
"""


def test_folders_of_killed_processes_are_removed_and_those_of_others_are_not(temporary):
  command = [sys.executable, "-c", KILLED, str(temporary)]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    folder = Path(process.stdout.readline().strip())
    (folder / "file").write_text("x")
    old = time.time() - 3600
    os.utime(folder, (old, old))
    with sandbox_folder() as other:
      assert folder.exists() and folders() == sorted([folder, Path(other)])
      os.utime(folder, (old, old))
      process.send_signal(signal.SIGKILL)
      process.wait()
      remove_stale.cache_clear()
      remove_stale(str(temporary))
      assert eventually(lambda: folders() == [Path(other)])


def test_young_folders_are_left_alone(temporary):
  (temporary / "pgax-sandbox-x").mkdir()  # its owner may be about to lock it
  remove_stale(str(temporary))
  assert len(folders()) == 1
