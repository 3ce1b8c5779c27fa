"""Messages about incidents, and what is done to the nodes that they name (docs/messages.md)."""
