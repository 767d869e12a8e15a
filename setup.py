"""pgax: policy-gradient reinforcement learning of language models, in JAX and Flax."""

from pathlib import Path

from setuptools import find_packages, setup

TEST = [
  "pytest>=8",
  "pytest-timeout>=2.3",
  "pytest-xdist>=3.5",
  "hypothesis>=6.100",
  "ipython>=8.20",
  "nbformat>=5.10",
  "polgrad==0.2.1",  # pinned: its references are in docs/conformance.md
  "ruff>=0.6",
  "torch==2.13.0",  # for the models of transformers that ours are compared with
]
# Extras of single rewards.
MATH = ["math-verify>=0.8,<0.10"]
JSON = ["jsonschema>=4.18,<5"]
# Extras of single kinds of data.
CHAT = ["jinja2>=3.1,<4"]  # the language of chat templates
REASONING_GYM = ["reasoning-gym==0.1.25"]  # pinned: its verifiers define the reward
GGUF = ["gguf>=0.17,<1"]  # reads the file of `experiments.prepare_smollm2`
# Extras of single loggers.
WANDB = ["wandb>=0.20,<1"]
MLFLOW = [  # without its server, and with what its SQLite file needs
  "mlflow-skinny>=3,<4",
  "sqlalchemy>=2,<3",
  "alembic>=1.13,<2",
]
# It compiles for TPUs on machines without one, too.
TPU = ["jax[tpu]"]  # the libtpu of its version
NOTEBOOKS = [
  "ipykernel>=6",
  "ipywidgets>=8",
  "treescope>=0.1.9",
]

setup(
  name="pgax",
  version="0.1.0",
  description=__doc__,
  long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  packages=find_packages(include=["pgax", "pgax.*"]),
  python_requires=">=3.11",
  install_requires=[
    "absl-py>=2.1,<3",
    "chex>=0.1.90,<0.2",
    "filelock>=4,<5",
    "flax>=0.12,<0.14",
    "grain>=0.2.12,<0.3",
    "jax>=0.10,<0.12",
    "matplotlib>=3.9,<4",
    "ml_dtypes>=0.5,<1",
    "numpy>=2.0,<3",
    "optax>=0.2.6,<0.3",
    "orbax-checkpoint>=0.11.20,<0.13",
    "pyarrow>=18",  # also required by TFDS
    "safetensors>=0.5,<1",
    "tensorboardX>=2.6,<3",
    "tensorflow-datasets>=4.9.8,<5",  # its data sources, without TensorFlow
    "tokenizers>=0.22,<1",
    "tqdm>=4.66,<5",
    "transformers>=5.0,<6",
  ],
  # The tests execute the notebooks.
  extras_require={
    "test": TEST + NOTEBOOKS + MATH + JSON + CHAT + GGUF + REASONING_GYM + WANDB + MLFLOW,
    "notebooks": NOTEBOOKS,
    "wandb": WANDB,
    "mlflow": MLFLOW,
    "math": MATH,
    "json": JSON,
    "chat": CHAT,
    "gguf": GGUF,
    "tpu": TPU,
    "reasoning_gym": REASONING_GYM,
  },
)
