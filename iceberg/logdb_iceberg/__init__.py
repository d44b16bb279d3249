"""Topics as tables of Apache Iceberg (docs/inside/iceberg.md)."""
