"""Object stores: a sink that writes objects as Confluent's S3 sink names them, and a source that reads them back."""
