"""Target policy optimization (arXiv 2604.06159), reproduced."""
