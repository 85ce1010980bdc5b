"""The drawings of docs/concepts.md and docs/compression_explained.md, one function each."""
