"""Programs that train, evaluate and sample."""

import os

# transformers says at import that it found no PyTorch. pgax uses its tokenizers only, and a
# newcomer should not read that something is missing.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
