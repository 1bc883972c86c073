"""pocket_ingest: every uploaded file is a partition, every record has an outcome."""
