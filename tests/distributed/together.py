"""A program for `test_hosts.py`: what processes of a run do together, as lines of JSON.

`python -m tests.distributed.together COORDINATOR COUNT INDEX FOLDER`
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from pgax.distributed import MeshConfig, hosts, make_mesh, placement
from pgax.distributed.cluster import initialize
from pgax.distributed.partitioning import batch_sharding
from pgax.errors import UserError
from pgax.runs.interrupt import Interrupt
from pgax.runs.workdir import open_workdir
from pgax.training import processes

COUNT = 8


def row_transfers(model: int) -> dict:
  """Puts rows on the devices of a mesh, and fetches them in every way."""
  sharding = batch_sharding(make_mesh(MeshConfig(model=model)))
  own = placement.owned_rows(sharding, COUNT)
  values = np.arange(3.0 * COUNT, dtype=np.float32).reshape(COUNT, 3)
  # Rows on the devices of other processes are not read.
  held = [
    x.index[0].indices(COUNT)[:2]
    for x in placement.put(values, sharding).addressable_shards
  ]
  only_held = np.full_like(values, -1)
  for start, stop in held:
    only_held[start:stop] = values[start:stop]
  batch = placement.put({"x": only_held}, sharding)
  other = placement.put({"x": only_held + 100}, sharding)
  order = [9, 1, 14, 3, 0, 8, 2, 15]
  taken = placement.take_rows([batch, other], np.array(order), sharding)["x"]
  return {
    "own": own.tolist(),
    "held": placement.held_rows(sharding, COUNT).tolist(),
    "fetched": placement.fetch_rows(batch, own)["x"].tolist(),
    "whole": placement.fetch(batch)["x"].tolist(),
    "first": placement.fetch_first(batch, 3)["x"].tolist(),
    "taken": placement.fetch(taken)[:, 0].tolist(),
    "taken_like_batch": taken.sharding.is_equivalent_to(sharding, taken.ndim),
  }


def message(function) -> str:
  """Returns the message of the error that a function raises."""
  try:
    function()
  except Exception as error:
    return f"{type(error).__name__}: {error}"
  return "no error"


def failing_alone(index: int) -> None:
  """Fails in the last process; a block around it and a later gather change nothing."""
  with hosts.shared_errors():
    with hosts.shared_errors():
      if jax.process_index() == index:
        raise UserError("no such file")
    hosts.wait_for_all()


def failing_writer() -> None:
  def fail() -> None:
    raise UserError("the disk is full")

  hosts.on_writer(fail)


def main(coordinator: str, count: str, index: str, folder: str) -> None:
  initialize(coordinator, int(count), int(index))
  me, shared = jax.process_index(), Path(folder) / "shared"
  interrupt = Interrupt()
  stops = [interrupt.stop()]
  interrupt.requested = me == 1  # as by a signal
  stops += [interrupt.stop()]
  interrupt.requested = False
  processes._WAIT_SECONDS = 0.1

  def lock() -> None:
    with open_workdir(shared, {}) as held:
      held.check()

  result = {
    "gathered": hosts.gather("x" * me),
    "long": [len(x) for x in hosts.gather(b"y" * (me * 5000))],
    "broadcast": hosts.broadcast(f"of {me}"),
    "any": [hosts.any_of(False), hosts.any_of(me == 1)],
    "on_writer": hosts.on_writer(lambda: me),
    "writer_fails": message(failing_writer),
    "last_fails": message(lambda: failing_alone(int(count) - 1)),
    "stops": stops,
    "rows": row_transfers(model=1),
    "rows_of_both": row_transfers(model=4),
    "same": message(lambda: processes.check_processes(shared, {"a": {"b": 1}})),
    "left": shared.exists(),
    "other_config": message(lambda: processes.check_processes(shared, {"a": {"b": me}})),
    "other_folder": message(
      lambda: processes.check_processes(Path(folder) / str(me), {"a": 1})
    ),
    "lock": message(lock),
    "locked_out": message(lambda: open_workdir(Path(folder) / "taken", {})),
  }
  hosts.wait_for_all()
  print(json.dumps(result))


if __name__ == "__main__":
  main(*sys.argv[1:])
