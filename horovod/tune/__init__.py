"""The autotuner: settings that make a job's steps shorter, looked for while it trains. docs/architecture.md."""
