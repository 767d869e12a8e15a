"""Attention of queries to keys in any number of parts, with one exact softmax."""

from pgax.models.attend.choice import attend
from pgax.models.attend.parts import Part, ScoreScale, TokenPositions, window_of

__all__ = ["Part", "ScoreScale", "TokenPositions", "attend", "window_of"]
