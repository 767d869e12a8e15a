"""Several processes as one run: found by their cluster, or named by flags."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

import jax
from jax._src.clusters import ClusterEnv

from pgax.distributed.hosts import this_process
from pgax.errors import UserError

# A process that dies ends all others within this time. Those that are busy on the host
# still answer: heartbeats have a thread of their own.
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
  try:
    jax.distributed.initialize(
      coordinator,
      num_processes,
      process_id,
      initialization_timeout=_START_SECONDS,
      heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
      shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
    )
  except RuntimeError as error:
    raise UserError(
      f"the processes of this run did not find each other: {str(error).splitlines()[0]}"
    ) from error


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
  """Ends this process at once if it fails unexpectedly, so that no other waits for it.

  Errors that a user can fix, and interrupts, pass.
  """
  try:
    yield
  except UserError:
    raise
  except Exception as error:
    if not jax.distributed.is_initialized():
      raise
    traceback.print_exc()
    if isinstance(error, jax.errors.JaxRuntimeError):
      print(
        f"\nerror: {this_process()} can't go on. If another process of this run has ended, "
        "its output says why. The same commands continue from the last checkpoint",
        file=sys.stderr,
      )
    sys.stderr.flush()
    os._exit(1)  # an orderly end would wait for all processes


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
  if not 0 <= process_id < num_processes:
    raise UserError(
      f"--process_id is {process_id} and --num_processes is {num_processes}; processes "
      "are numbered from 0"
    )


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
