"""Benchmarks: speed compared with the limits of the machine and with other libraries."""
