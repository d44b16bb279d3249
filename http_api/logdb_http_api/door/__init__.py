"""The HTTP door: connections, requests, and the routes of logdb itself."""
