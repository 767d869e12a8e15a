"""The library's functions under the names and shapes of other code bases."""

from pgax.interop import cs336, cs336_2026

__all__ = ["cs336", "cs336_2026"]
