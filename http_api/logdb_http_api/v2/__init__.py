"""REST v2: Confluent's REST Proxy as its clients know it."""
