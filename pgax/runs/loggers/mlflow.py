"""Metrics in MLflow; an extra."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgax.runs.loggers.protocol import Logger
from pgax.runs.workdir import flatten

_RUN_ID, _DATABASE = "mlflow_run_id", "mlflow.db"
_FORBIDDEN = re.compile(r"[^\w\-./: ]")  # in names
_MAX_PARAMS, _MAX_LENGTH = 100, 6000  # limits of MLflow, per call and per text


class MLflow(Logger):
  """Logs to MLflow: to `MLFLOW_TRACKING_URI`, or to the SQLite file `mlflow.db`.

  The file is in the workdir; `mlflow ui --backend-store-uri sqlite:///DIR/mlflow.db` shows
  it. The run's id is kept in the workdir, so that a resumed run continues the same curves.
  Steps that a killed run did after its last checkpoint appear twice.

  Args:
    workdir: folder of the run.
    last_steps: see `JsonLines`; ignored.
  """

  def __init__(self, workdir: Path, last_steps: Mapping[str, int]):
    del last_steps
    self._workdir, self._client, self._run_id = workdir, None, ""

  def start(self, config: Mapping[str, Any]) -> None:
    """Starts or resumes the run, with the configuration as its parameters."""
    from mlflow.entities import Param  # lazily, because it is an extra
    from mlflow.tracking import MlflowClient

    uri = os.environ.get("MLFLOW_TRACKING_URI")
    database = f"sqlite:///{self._workdir.absolute() / _DATABASE}"
    self._client = MlflowClient(tracking_uri=uri or database)
    path = self._workdir / _RUN_ID
    if path.exists() and self._resumed(path.read_text()):
      return
    experiment = self._client.get_experiment_by_name("pgax")
    experiment_id = (
      experiment.experiment_id if experiment else self._client.create_experiment("pgax")
    )
    run = self._client.create_run(experiment_id, run_name=config.get("name"))
    self._run_id = run.info.run_id
    params = [Param(k, str(v)[:_MAX_LENGTH]) for k, v in flatten(config).items()]
    for start in range(0, len(params), _MAX_PARAMS):
      self._client.log_batch(self._run_id, params=params[start : start + _MAX_PARAMS])
    path.write_text(self._run_id)

  def _resumed(self, run_id: str) -> bool:
    """Reopens a run; false if this store, another one than before perhaps, has none."""
    from mlflow.exceptions import MlflowException

    try:
      self._client.update_run(run_id, status="RUNNING")
    except MlflowException:
      return False
    self._run_id = run_id
    return True

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Logs the metrics of a step; characters that MLflow does not allow become `_`."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    names = {name: _FORBIDDEN.sub("_", name.replace("@", "_at_")) for name in values}
    metrics = [Metric(names[name], float(x), now, step) for name, x in values.items()]
    self._client.log_batch(self._run_id, metrics=metrics)

  def close(self) -> None:
    """Marks the run as finished; a resumed run reopens it."""
    if self._run_id:
      self._client.set_terminated(self._run_id)
