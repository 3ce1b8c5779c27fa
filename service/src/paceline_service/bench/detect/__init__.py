"""``paceline bench detect``: how well the verdict is, on jobs whose truth is known."""
