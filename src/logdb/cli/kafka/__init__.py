"""What plays Kafka's tools and kcat: their names, flags, formats and output; the commands that they alone have."""
