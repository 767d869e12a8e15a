"""Programs that train, evaluate and sample."""

import os

# transformers warns at import that PyTorch is missing. pgax uses its tokenizers only.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
