"""A program of a few operations; as a program of its own, it prints a study of it."""

import jax
import jax.numpy as jnp
import numpy as np

from pgax.study import Program, run_program

STEPS, EVERY = 6, 2


def start(numbers, seeds):
  del numbers
  return jnp.asarray(seeds, jnp.float32)


def step(numbers, state, data, index):
  nearer = state + numbers["rate"] * (numbers["target"] - state)
  state = nearer + data + jnp.float32(index) * 0
  return state, {"x": state}


def evaluate(numbers, state, seed):
  del seed
  return {"error": jnp.abs(state - numbers["target"])}


def data(seeds):
  return np.array(seeds, np.float32)[:, None] + np.arange(STEPS, dtype=np.float32)


def program():
  return Program(STEPS, start, step, data, evaluate, EVERY)


if __name__ == "__main__":
  settings = [{"rate": 0.1, "target": 1.0}, {"rate": 0.2, "target": 1.0}]
  metrics = run_program(program(), settings, [3, 0, 7], progress=False)
  print(len(jax.devices()), *metrics["x"].ravel().tolist())
