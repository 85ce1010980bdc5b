"""The autotuner: settings that make steps shorter, looked for while a job trains. docs/architecture.md."""
