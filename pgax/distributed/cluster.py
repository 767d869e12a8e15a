"""Several processes as one run: found by their cluster, or named by flags."""

import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator

import jax
from jax._src.clusters import ClusterEnv

from pgax.distributed.hosts import this_process
from pgax.errors import UserError

# A process that dies ends all others within this time. Those that are busy on the host
# still answer: heartbeats have a separate thread.
_HEARTBEAT_SECONDS = 15
_SHUTDOWN_SECONDS = 10
_START_SECONDS = 300


def initialize(
  coordinator: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
) -> None:
  """Joins this process to the others of its run, before anything asks for devices.

  Without arguments, processes that Cloud TPU, GKE, Slurm or Open MPI started together find
  each other. A process that was started alone stays alone.

  Args:
    coordinator: address and port of process 0, `HOST:PORT`.
    num_processes: number of processes.
    process_id: index of this process, from 0.

  Raises:
    UserError: if only some of the arguments are given, one is out of its range, or the
      processes don't find each other.
  """
  given = (coordinator, num_processes, process_id)
  if given == (None, None, None):
    if _detected_processes() < 2:
      return
  else:
    _check(*given)
    if num_processes == 1:
      return
  # Started here, because JAX aborts without a message that a user can read.
  giving_up = threading.Timer(_START_SECONDS, _give_up, given)
  giving_up.daemon = True
  giving_up.start()
  on_term = signal.getsignal(signal.SIGTERM)
  try:
    jax.distributed.initialize(
      coordinator,
      num_processes,
      process_id,
      initialization_timeout=2 * _START_SECONDS,
      heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
      shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
    )
  except (RuntimeError, ValueError) as error:
    raise UserError(
      f"the processes of this run did not find each other: {str(error).splitlines()[0]}"
    ) from error
  finally:
    giving_up.cancel()
  # JAX's own handler, from here on, would only take note of a request to stop.
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, on_term or signal.SIG_DFL)


def _give_up(
  coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  """Ends a process that has waited for the others for too long."""
  which = "this process"
  if coordinator:
    which = f"process {process_id} of {num_processes} with --coordinator={coordinator}"
  print(
    f"error: {which} has waited for the others for {_START_SECONDS} s. Start all of them, "
    "with an address of process 0 that they all reach",
    file=sys.stderr,
    flush=True,
  )
  os._exit(2)


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
  """Ends this process at once if it fails unexpectedly, so that no other waits for it.

  Errors that a user can fix pass; all processes have them.
  """
  try:
    yield
  except (UserError, SystemExit):
    raise
  except BaseException as error:
    if not jax.distributed.is_initialized():
      raise
    try:
      _report(error)
    finally:
      # An orderly end waits for programs on the devices of other processes, maybe for ever.
      os._exit(130 if isinstance(error, KeyboardInterrupt) else 1)


def _report(error: BaseException) -> None:
  if isinstance(error, KeyboardInterrupt):
    reason = "was interrupted"
  else:
    traceback.print_exception(error)
    reason = "can't continue. If another process of this run has ended, its output says why"
  print(
    f"\nerror: {this_process()} {reason}. The same commands continue from the last "
    "checkpoint",
    file=sys.stderr,
    flush=True,
  )


def _check(
  coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
  if None in (coordinator, num_processes, process_id):
    raise UserError(
      f"--coordinator is {coordinator}, --num_processes is {num_processes} and "
      f"--process_id is {process_id}; give all of them or none"
    )
  host, colon, port = coordinator.rpartition(":")
  if not (host and colon and port.isdigit()):
    raise UserError(f"--coordinator is {coordinator!r}; it must be HOST:PORT")
  if not 1 <= int(port) < 2**16:
    raise UserError(f"--coordinator is {coordinator!r}; the port must be from 1 to 65535")
  if not 0 <= process_id < num_processes:
    raise UserError(
      f"--process_id is {process_id} and --num_processes is {num_processes}; processes "
      "are numbered from 0"
    )
  if process_id == 0 and num_processes > 1:
    _check_free(int(port))


def _check_free(port: int) -> None:
  """Checks that process 0 can listen at a port; JAX crashes if it can't."""
  try:
    with socket.create_server(("", port), reuse_port=False):
      pass
  except OSError as error:
    raise UserError(
      f"process 0 can't listen at port {port} of --coordinator: {error.strerror}"
    ) from None


def _detected_processes() -> int:
  """Returns how many processes a cluster started together; 1 without a cluster.

  `jax.distributed.initialize()` fails without a cluster, and has no public way to ask.
  """
  for cluster in ClusterEnv._cluster_types:
    if (
      not cluster.opt_in_only_method
      and _started_together(cluster.__name__)
      and cluster.is_env_present()
    ):
      return cluster.get_process_count()
  return 1


def _started_together(cluster: str) -> bool:
  """Returns False for a process that runs alone in a cluster that can run several.

  A shell in a Slurm allocation has the allocation's number of tasks, and a pod that belongs
  to no indexed job has no other processes to wait for.
  """
  if cluster == "SlurmCluster":
    return os.environ.get("SLURM_STEP_NUM_TASKS", "") != "1"
  if cluster == "K8sCluster":
    return "JOB_COMPLETION_INDEX" in os.environ
  return True
