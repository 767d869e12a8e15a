"""The command line that starts a program in bubblewrap."""

import os
import shutil
import sys

from pgax.sandbox.isolation import FOLDER


def bubblewrap_command(program_folder: str, disk: int) -> list[str]:
  """Returns the command that runs the command after it in bubblewrap.

  Args:
    program_folder: folder that is readable in the sandbox, besides Python and the system
      libraries.
    disk: number of bytes that can be written in the sandbox's folder.

  Returns:
    A list of arguments that ends in `--`.
  """
  prefix = os.path.realpath(sys.base_prefix)
  folders = ["/usr", *([] if prefix.startswith("/usr") else [prefix])]
  folders += [sys.prefix, program_folder]
  bwrap = shutil.which("bwrap") or "bwrap"  # a full path, as its environment is empty
  # The launcher is process 1, because code could trace bubblewrap's own first process.
  command = [bwrap, "--unshare-all", "--die-with-parent", "--as-pid-1", "--clearenv"]
  for name in ("lib", "lib64", "bin"):
    if os.path.islink(f"/{name}"):
      command += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    elif os.path.isdir(f"/{name}"):
      folders.append(f"/{name}")
  for folder in folders:
    command += ["--ro-bind", folder, folder]
  # No `--dev`, whose `/dev/shm` is writable without a limit.
  command += ["--size", str(2**20), "--tmpfs", "/dev"]  # until it is known what it holds
  for name in ("null", "zero", "urandom"):
    command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
  command += ["--size", str(disk), "--tmpfs", FOLDER, "--remount-ro", "/"]
  command += ["--cap-add", "CAP_SYS_ADMIN", "--chdir", FOLDER]  # until the code runs
  return [*command, "--"]
