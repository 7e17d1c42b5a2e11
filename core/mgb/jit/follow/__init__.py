"""A body is noted once more, with what stands for its numbers and lengths: its record then holds for others.

Nothing of that run stays, and no function of anybody's is changed: where calls have to be seen the run goes
through copies of the functions.
"""
