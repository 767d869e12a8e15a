"""Ablations of the choices that make a policy-gradient algorithm, as studies."""
