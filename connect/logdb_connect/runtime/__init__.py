"""The worker: runs connectors and tasks, and keeps their configs, offsets and statuses."""
