"""What every command talks through: its options, the session, what it prints.  No command is here."""
