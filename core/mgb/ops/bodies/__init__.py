"""Ops computed by other ops: exponentials, circles, special functions, rounding, integers."""
