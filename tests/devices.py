"""Programs on several host devices, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_on_devices(devices: int, module: str, *arguments: object) -> str:
  """Runs `python -m module arguments` on that many host devices; returns what it printed.

  Each collective blocks a thread of the backend until all devices arrive. With as many
  threads as devices, two collectives at once can each hold the threads that the other waits
  for, so a device has several; and a loaded machine gets minutes instead of 40 seconds.
  """
  flags = (
    os.environ.get("XLA_FLAGS", ""),
    f"--xla_force_host_platform_device_count={devices}",
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=120",
    "--xla_cpu_collective_call_terminate_timeout_seconds=1200",
  )
  threads = str(8 * devices)
  settings = {"XLA_FLAGS": " ".join(flags), "NPROC": threads, "JAX_PLATFORMS": "cpu"}
  done = subprocess.run(
    [sys.executable, "-m", module, *map(str, arguments)],
    cwd=ROOT,
    env=os.environ | settings,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  return done.stdout
