"""Other people's interfaces to the same functions."""

from pgax.interop import cs336

__all__ = ["cs336"]
