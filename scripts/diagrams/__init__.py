"""The drawings of docs/concepts.md, docs/compression_explained.md and docs/gpu.md, one function each."""
