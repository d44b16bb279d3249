"""REST v2: the API of Confluent's REST Proxy."""
