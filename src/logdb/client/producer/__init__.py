"""What applications write with."""
