"""Numbers of other libraries, computed with pgax: `python -m experiments.conformance`."""
