"""The library's functions under the names and shapes of other code bases."""

from pgax.interop import cs336

__all__ = ["cs336"]
