"""Commands on topics: their configs, their size, and what is kept of them."""
