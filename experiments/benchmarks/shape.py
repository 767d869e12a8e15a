"""The shape of a benchmark: sizes of the model and of the batch.

Only the standard library is imported, because environments of other libraries, which have
no pgax, import this file as well.
"""

import dataclasses
import os
from pathlib import Path

DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Shape:
  """Sizes and settings that all libraries of a comparison share.

  Attributes:
    layers: number of transformer blocks.
    embed: width of the residual stream.
    heads: number of query heads; must divide `embed`.
    kv_heads: number of key heads; must divide `heads`. 0 means as many as `heads`.
    hidden: width of the gated feed-forward layer; 0 means `4 * embed`.
    vocab: number of token ids.
    prompts: number of prompts.
    group: number of completions of each prompt.
    prompt_len: number of tokens in a prompt.
    gen_len: number of tokens in a completion; no completion ends before it.
    micro: number of microbatches of an update; must divide `prompts`.
    beta: coefficient of the KL penalty in the loss; 0 for no reference.
    lr: learning rate.
    dtype: dtype of activations and cache.
    remat: whether the backward pass recomputes each layer's activations.
    threads: number of cores; 0 for all that the process may use.
  """

  layers: int = 4
  embed: int = 256
  heads: int = 4
  kv_heads: int = 4
  hidden: int = 0
  vocab: int = 512
  prompts: int = 8
  group: int = 8
  prompt_len: int = 64
  gen_len: int = 128
  micro: int = 1
  beta: float = 0.04
  lr: float = 1e-4
  dtype: str = "float32"
  remat: bool = False
  threads: int = 0

  def __post_init__(self):
    object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
    object.__setattr__(self, "hidden", self.hidden or 4 * self.embed)
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      least = {"threads": 0, "vocab": 4}.get(field.name, 1)
      if field.type is int and not least <= value < 2**31:
        raise ValueError(f"{field.name} is {value}; it must be at least {least}")
      if field.type is float and not 0 <= value < float("inf"):
        raise ValueError(f"{field.name} is {value}; it must be at least 0, and finite")
    self._check_divisors()
    if self.dtype not in DTYPES:
      raise ValueError(f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}")
    cores = len(os.sched_getaffinity(0))
    if self.threads > cores:
      raise ValueError(f"threads is {self.threads}; there are {cores} cores")

  def _check_divisors(self):
    pairs = (("heads", "embed"), ("kv_heads", "heads"), ("micro", "prompts"))
    for divisor, name in pairs:
      part, total = getattr(self, divisor), getattr(self, name)
      if total % part:
        raise ValueError(f"{divisor} is {part}; it must divide {name}, which is {total}")
    if self.head_dim % 2:
      raise ValueError(
        f"embed is {self.embed} and heads is {self.heads}; the width of a head, "
        f"{self.head_dim}, must be even for RoPE"
      )

  @property
  def head_dim(self) -> int:
    """Width of a head."""
    return self.embed // self.heads

  @property
  def rows(self) -> int:
    """Number of completions."""
    return self.prompts * self.group

  @property
  def new_tokens(self) -> int:
    """Number of tokens that are sampled."""
    return self.rows * self.gen_len

  @property
  def cores(self) -> int:
    """Number of cores that a process is pinned to."""
    return self.threads or len(os.sched_getaffinity(0))


def pin(threads: int) -> None:
  """Pins this process to some cores; call it before anything is computed.

  XLA starts one thread per core that it may use.

  Args:
    threads: number of cores; 0 changes nothing.
  """
  if threads:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def peak_memory() -> int:
  """Returns the largest resident memory of this process so far, in bytes."""
  # Unlike ru_maxrss, this does not count the process that this one was forked from.
  status = Path("/proc/self/status").read_text()
  line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
  return int(line.split()[1]) * 1024
