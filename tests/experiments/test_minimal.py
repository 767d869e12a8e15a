"""The page that composes the functions learns, and the README quotes it."""

from pathlib import Path

import numpy as np

from experiments import minimal

ROOT = Path(__file__).parents[2]


def test_it_learns_and_prints_its_curve(monkeypatch, capsys):
  monkeypatch.setattr(minimal, "STEPS", 30)
  curve = minimal.main()
  assert len(curve) == 30 and np.isfinite(curve).all()
  assert np.mean(curve[:3]) < 0.25 and np.mean(curve[-3:]) > 0.5  # chance is 1 in 11
  assert capsys.readouterr().out.count("reward") == 6


def test_the_readme_quotes_it():
  page = (ROOT / "experiments" / "minimal.py").read_text()
  assert len(page.splitlines()) <= 120
  quote = "def train_step" + page.split("def train_step", 1)[1].split("\n\n\n", 1)[0]
  assert f"```python\n{quote}\n```" in (ROOT / "README.md").read_text()
