"""Who may do what: tokens, their scopes and job prefixes, and the Host header."""
