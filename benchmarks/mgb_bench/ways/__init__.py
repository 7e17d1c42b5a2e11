"""The functions that peers call where a case is more than a formula: one module for each kind of peer."""
