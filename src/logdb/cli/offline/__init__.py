"""Commands on the files of a directory: they check, mend, print and copy them."""
