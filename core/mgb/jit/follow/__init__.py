"""Symbolic tracing: numbers and lengths of axes that change from call to call become symbolic.

A call is recorded with plain numbers first, which is always right. When a call comes with others, its body is
noted once more with symbolic numbers, and undone; then it is recorded plainly as well. If both are the same
ops for these numbers, the general record serves the calls to come. If the body cannot be followed, each
number has its own record: slower, never wrong.

* `substitution`: symbolic numbers stand for plain ones, outside and among the arguments, during the call;
* `transform`, `code`, `calls`, `operands`: hooks at the calls in copies of functions;
* `following`: the observer of a call that is noted so;
* `refused`: what ends such a call;
* `agreement`: are two records the same?
"""

from __future__ import annotations

from .agreement import agree
from .following import Following
from .refused import NotFollowed

__all__ = ["Following", "NotFollowed", "agree"]
