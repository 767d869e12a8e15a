"""Config files: each has a function `get_config`; its docstring states time and score."""
