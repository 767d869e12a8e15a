"""Estimates the memory and communication of a run for a device topology."""
