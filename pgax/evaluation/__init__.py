"""Evaluation of policies: accuracy, pass@k, votes and solve rates."""
