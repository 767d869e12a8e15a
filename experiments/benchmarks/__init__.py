"""Benchmarks: how fast, against what the machine can do and against the field's tools."""
