"""Programs of several processes, each with host devices of its own."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def start(
  count: int, devices: int, module: str, *arguments: object, **environment: str
) -> list[subprocess.Popen]:
  """Starts `python -m module COORDINATOR COUNT INDEX arguments` for each process.

  Programs of `experiments` take the first three as flags. See `tests.devices` for the
  number of threads.
  """
  with socket.socket() as free:
    free.bind(("localhost", 0))
    coordinator = f"localhost:{free.getsockname()[1]}"
  flags = os.environ.get("XLA_FLAGS", "")
  settings = {
    "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={devices}",
    "NPROC": str(8 * devices),
    "JAX_PLATFORMS": "cpu",
  }

  def place(index: int) -> list[str]:
    if module.startswith("experiments."):
      names = ("coordinator", "num_processes", "process_id")
      values = zip(names, (coordinator, count, index), strict=True)
      return [f"--{name}={value}" for name, value in values]
    return [coordinator, str(count), str(index)]

  return [
    subprocess.Popen(
      [sys.executable, "-m", module, *place(index), *map(str, arguments)],
      cwd=ROOT,
      env=os.environ | settings | environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in range(count)
  ]


def finish(
  processes: list[subprocess.Popen], timeout: float | None = None
) -> list[tuple[int, str, str]]:
  """Waits for processes; returns status, output and errors of each."""
  try:
    streams = [process.communicate(timeout=timeout) for process in processes]
  finally:
    for process in processes:
      process.kill()
  return [
    (process.returncode, *texts) for process, texts in zip(processes, streams, strict=True)
  ]
