"""Config files: each has a function `get_config`, and says what to expect of it."""
