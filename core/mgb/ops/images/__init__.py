"""Products, convolutions, pooling, attention."""
