"""What the door does for each API: a module for a family, or for one API.  ``apis`` finds what is in a module here."""
