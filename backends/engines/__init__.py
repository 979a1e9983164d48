"""What differs between engines: metric names, error texts, optional request fields. One table a kind."""
