"""What transfers take, and where they take longer than they did."""
