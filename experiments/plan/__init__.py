"""Whether a run fits its devices, and what they send each other, before there are any."""
