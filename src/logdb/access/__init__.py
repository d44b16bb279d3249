"""Who may do what: principals, credentials, ACLs, quotas, the audit log, and sessions that ask them."""
