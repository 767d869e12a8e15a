"""Errors that are the user's to mend."""


class UserError(ValueError):
  """A bad configuration, folder or file; the message says what is wrong and what to do."""
