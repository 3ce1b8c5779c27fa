"""What can be done about a node: proposed always, done only where that is configured."""
