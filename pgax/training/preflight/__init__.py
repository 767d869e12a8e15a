"""Checks that reject a run before anything is compiled."""

from pgax.training.preflight.check import check_run

__all__ = ["check_run"]
