"""The formulas again, in NumPy float64 and plain loops, as references."""

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
  """Reward minus the mean of the others."""
  if len(values) == 1:
    return [0.0]
  out = []
  for k, value in enumerate(values):
    others = values[:k] + values[k + 1 :]
    out.append(value - sum(others) / len(others))
  return out


def dr_grpo(values: list[float]) -> list[float]:
  """Reward minus the mean."""
  return [value - sum(values) / len(values) for value in values]


def grpo(values: list[float], ddof: int, eps: float) -> list[float]:
  """Reward minus the mean, over the deviation."""
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
  """PPO's loss of one token and its derivative by `logp`."""
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
  """Loss and derivative of one token under the other token surrogates."""
  ratio = math.exp(logp - old_logp)
  if name == "unclipped":
    return -advantage * ratio, -advantage * ratio
  if name == "mdpo":  # of step size 0.5; ratio * k3 = 1 - ratio + ratio log ratio
    divergence = 1 - ratio + ratio * (logp - old_logp)
    slope = ratio * (logp - old_logp)
    return -advantage * ratio + 2 * divergence, -advantage * ratio + 2 * slope
  if name == "cispo":  # 0.2 below and 0.3 above
    weight = min(max(ratio, 0.8), 1.3)
    return -weight * advantage * logp, -weight * advantage
  if name == "sapo":
    tau = 1.0 if advantage > 0 else 1.05
    gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
    return -advantage * 4 / tau * gate, -advantage * 4 * gate * (1 - gate) * ratio
  change = math.exp(logp) - math.exp(old_logp)  # dppo
  far = (advantage > 0 and change > 0.2) or (advantage < 0 and change < -0.2)
  return -advantage * ratio, 0.0 if far else -advantage * ratio


def a_lol(
  logp, ref_logp, advantage, clip: float, importance: str
) -> tuple[float, list[float]]:
  """A-LoL's loss of a completion, its mean over tokens, and the derivative by each."""
  each = [a - b for a, b in zip(logp, ref_logp, strict=True)]
  loss, slopes = 0.0, []
  for a, own in zip(logp, each, strict=True):
    log_ratio = {"sequence": sum(each), "token": own, "none": 0.0}[importance]
    weight = min(max(math.exp(log_ratio), 1 - clip), 1 + clip)
    loss -= max(advantage, 0.0) * weight * a / len(logp)
    slopes.append(-max(advantage, 0.0) * weight / len(logp))
  return loss, slopes


def mdpo_kimi(log_ratios, advantages, tau: float) -> tuple[float, list[float]]:
  """Kimi's loss, the mean over a group; its derivative by each completion's log-ratio."""
  count = len(advantages)
  errors = [a - tau * x for x, a in zip(log_ratios, advantages, strict=True)]
  return sum(e**2 for e in errors) / (2 * tau * count), [-e / count for e in errors]


def _over_pairs(count: int, pair) -> tuple[float, list[float]]:
  """Mean of `pair(i, j)` over unordered pairs, and its derivative by each of the two."""
  loss, slopes, pairs = 0.0, [0.0] * count, count * (count - 1) / 2
  for i in range(count):
    for j in range(i + 1, count):
      term, by_i, by_j = pair(i, j)
      loss += term / pairs
      slopes[i] += by_i / pairs
      slopes[j] += by_j / pairs
  return loss, slopes


def copg(log_ratios, rewards, beta: float) -> tuple[float, list[float]]:
  """CoPG's loss of a group; its derivative by each completion's log-ratio."""

  def pair(i, j):
    difference = rewards[i] - beta * log_ratios[i] - (rewards[j] - beta * log_ratios[j])
    return difference**2 / (2 * beta), -difference, difference

  return _over_pairs(len(rewards), pair)


def p3o(log_ratios, rewards, clip: float, form: str) -> tuple[float, list[float]]:
  """P3O's loss of a group; its derivative by each completion's log-ratio."""
  rho = [math.exp(x) for x in log_ratios]

  def one(i, j):  # PPO's clip, the other ratio a part of the advantage
    half = (rewards[i] - rewards[j]) / 2
    return clipped(log_ratios[i], 0.0, half * rho[j], clip, clip)

  def pair(i, j):
    if form == "separate":
      (loss_i, by_i), (loss_j, by_j) = one(i, j), one(j, i)
      return loss_i + loss_j, by_i, by_j
    weight = (rewards[i] - rewards[j]) / 2 * rho[i] * rho[j]
    difference = log_ratios[i] - log_ratios[j]
    plain, bounded = -weight * difference, -weight * min(max(difference, -clip), clip)
    slope = -weight if plain >= bounded else 0.0
    return max(plain, bounded), slope, -slope

  return _over_pairs(len(rewards), pair)


def bradley_terry(chosen: float, rejected: float) -> float:
  """Minus the log of the chance that the chosen one is preferred."""
  return -math.log(math.exp(chosen) / (math.exp(chosen) + math.exp(rejected)))
