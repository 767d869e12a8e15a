"""The formulas once more, in NumPy float64 and plain loops, to compare with."""

import math

import numpy as np


def group(rewards: np.ndarray, valid: np.ndarray, formula) -> np.ndarray:
  """Applies a formula to the valid rewards of each group; 0 elsewhere."""
  out = np.zeros(rewards.shape)
  for n in range(rewards.shape[0]):
    chosen = [k for k in range(rewards.shape[1]) if valid[n, k]]
    values = [float(rewards[n, k]) for k in chosen]
    for k, advantage in zip(chosen, formula(values), strict=True):
      out[n, k] = advantage
  return out


def rloo(values: list[float]) -> list[float]:
  """Reward less the mean of the others."""
  if len(values) == 1:
    return [0.0]
  out = []
  for k, value in enumerate(values):
    others = values[:k] + values[k + 1 :]
    out.append(value - sum(others) / len(others))
  return out


def dr_grpo(values: list[float]) -> list[float]:
  """Reward less the mean."""
  return [value - sum(values) / len(values) for value in values]


def grpo(values: list[float], ddof: int, eps: float) -> list[float]:
  """Reward less the mean, over the deviation."""
  if not values or max(values) == min(values):
    return [0.0] * len(values)
  mean = sum(values) / len(values)
  variance = sum((value - mean) ** 2 for value in values) / (len(values) - ddof)
  return [(value - mean) / (math.sqrt(variance) + eps) for value in values]


def weights(mask: np.ndarray, kind: str, max_length: int = 1) -> np.ndarray:
  """Token weights of a mask `[N, G, T]`."""
  out = np.zeros(mask.shape)
  lengths = mask.sum(-1)
  sequences = sum(1 for length in lengths.flat if length > 0)
  for n, k, t in np.argwhere(mask):
    out[n, k, t] = {
      "sequence_mean": 1 / (lengths[n, k] * sequences),
      "token_mean": 1 / mask.sum(),
      "fixed_length": 1 / (max_length * sequences),
      "sequence_sum": 1 / sequences,
    }[kind]
  return out


def clipped(
  logp: float, old_logp: float, advantage: float, low: float, high: float, dual=None
) -> tuple[float, float]:
  """PPO's loss of one token and its derivative with respect to `logp`."""
  ratio = math.exp(logp - old_logp)
  plain, bounded = -advantage * ratio, -advantage * min(max(ratio, 1 - low), 1 + high)
  loss, slope = (plain, plain) if plain >= bounded else (bounded, 0.0)
  if dual is not None and advantage < 0 and loss > -advantage * dual:
    loss, slope = -advantage * dual, 0.0
  return loss, slope


def gspo(logp, old_logp, advantage, low: float, high: float) -> tuple[float, float]:
  """GSPO's loss of a sequence, and its derivative by the log-probability of any token."""
  mean = sum(a - b for a, b in zip(logp, old_logp, strict=True)) / len(logp)
  loss, slope = clipped(mean, 0.0, advantage, low, high)
  return loss, slope / len(logp)


def gmpo(logp, old_logp, advantage, clip: float) -> tuple[float, list[float]]:
  """GMPO's loss of a sequence, and its derivative by each token's log-probability."""
  bounded, free = [], []
  for a, b in zip(logp, old_logp, strict=True):
    ratio = a - b
    cut = (advantage > 0 and ratio > clip) or (advantage < 0 and ratio < -clip)
    bounded.append(math.copysign(clip, advantage) if cut else ratio)
    free.append(not cut)
  loss = -advantage * math.exp(sum(bounded) / len(bounded))
  return loss, [loss / len(bounded) * one for one in free]


def token_surrogate(
  name: str, logp: float, old_logp: float, advantage: float
) -> tuple[float, float]:
  """Loss and derivative of one token under CISPO, SAPO or DPPO, at their settings here."""
  ratio = math.exp(logp - old_logp)
  if name == "cispo":  # 0.2 below and 0.3 above
    weight = min(max(ratio, 0.8), 1.3)
    return -weight * advantage * logp, -weight * advantage
  if name == "sapo":
    tau = 1.0 if advantage > 0 else 1.05
    gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
    return -advantage * 4 / tau * gate, -advantage * 4 * gate * (1 - gate) * ratio
  moved = math.exp(logp) - math.exp(old_logp)  # dppo
  far = (advantage > 0 and moved > 0.2) or (advantage < 0 and moved < -0.2)
  return -advantage * ratio, 0.0 if far else -advantage * ratio
