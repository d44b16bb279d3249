"""What applications read with, alone or in a group."""
