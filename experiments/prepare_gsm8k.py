"""GSM8K for TFDS: `python -m experiments.prepare_gsm8k --source=DIR --data_dir=DIR`.

Reads `train.jsonl` and `test.jsonl`, the original files of GSM8K (arXiv 2110.14168), from
`--source`, and writes the dataset `gsm8k` below `--data_dir` in `array_record` files, with
the fields that it has in TFDS. Nothing is downloaded, and TensorFlow is not needed.
The rows keep their order.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import tensorflow_datasets as tfds
from absl import flags

from experiments import program
from pgax.data.records import json_lines
from pgax.data.sources import read_problems
from pgax.rewards.math import MARKER
from pgax.tasks import GSM8KFields
from pgax.training import UserError

_SPLITS = ("train", "test")
_FIELDS = ("question", "answer", "annotation", "short_answer")

_SOURCE = flags.DEFINE_string(
  "source", None, "Folder of train.jsonl and test.jsonl.", required=True
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "Folder to write the dataset in.", required=True
)


class Gsm8k(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """GSM8K from local files, with the name, version and fields of TFDS.

  Args:
    source: folder of the files.
    data_dir: folder to write in.
  """

  VERSION = tfds.core.Version("1.0.0")
  # TFDS would look for a file of checksums here, in a package that may be missing.
  code_path = None

  def __init__(self, source: Path, data_dir: Path):
    self._source = source
    super().__init__(data_dir=str(data_dir), file_format="array_record")

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
      builder=self,
      description="Grade-school math problems with worked solutions, arXiv 2110.14168.",
      features=tfds.features.FeaturesDict({x: tfds.features.Text() for x in _FIELDS}),
      homepage="https://github.com/openai/grade-school-math",
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> Mapping:
    del dl_manager
    return {x: self._generate_examples(self._source / f"{x}.jsonl") for x in _SPLITS}

  def _generate_examples(self, path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    rows = json_lines(str(path))
    for index in range(len(rows)):
      question, answer = (rows[index][name] for name in ("question", "answer"))
      annotation, _, short = answer.rpartition(MARKER)
      short = short.removeprefix(" ")
      yield index, dict(zip(_FIELDS, (question, answer, annotation, short), strict=True))


def prepare(source: Path, data_dir: Path) -> Path:
  """Writes the dataset.

  Args:
    source: folder of the two files.
    data_dir: folder to write the dataset in.

  Returns:
    The folder of the dataset.

  Raises:
    UserError: if a file can't be read or has a bad row, or the dataset exists.
  """
  try:
    for split in _SPLITS:  # all rows, before anything is written
      read_problems(json_lines(str(source / f"{split}.jsonl")), GSM8KFields())
    builder = Gsm8k(source, data_dir)
    if builder.data_path.exists():
      raise UserError(f"{builder.data_path} exists already; remove it to write it again")
    tfds.disable_progress_bar()
    builder.download_and_prepare()
    # TFDS creates these without downloading anything. Others may have files in them.
    for folder in (data_dir / "downloads" / "extracted", data_dir / "downloads"):
      with contextlib.suppress(OSError):
        folder.rmdir()
  except ValueError as error:
    raise UserError(str(error)) from error
  except OSError as error:
    raise UserError(f"{error.filename}: {error.strerror}") from error
  return Path(builder.data_path)


def main() -> int:
  """Writes the dataset, and prints its size and folder."""
  folder = prepare(Path(_SOURCE.value), Path(_DATA_DIR.value))
  info = json.loads((folder / "dataset_info.json").read_text(encoding="utf-8"))
  for split in info["splits"]:
    print(f"{split['name']}: {sum(map(int, split['shardLengths']))} problems")
  print(f"dataset: {folder}")
  return 0


if __name__ == "__main__":
  program.run(main)
