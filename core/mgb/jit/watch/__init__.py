"""Observation of one call: its external state, as guards, and the reasons why it cannot be skipped.

A function's body runs once under an `Observer`, which needs neither its source nor any change of its code.
What existed before the call is *outside*. At the start of each function that runs the names in its code are
followed: whatever they lead to is a location, and what stands there a guard. What guards do not
hold after the body was written by it. What is in C, and unknown, or hides its state, is an impurity, too.

* `names`: what code can name;
* `walk`, `variables`, `bearer`, `unread`: the locations that names lead to;
* `modules`: what is looked up in ``sys.modules``, or imported;
* `kinds`, `classes`, `instances`: the guards of each kind of object;
* `events`: which code starts, and which functions in C are called;
* `known`, `pure`, `ops`: what is known of these; `codes`: whose each code object is, asked once;
* `epochs`: whether a class has been changed;
* `written`: what has changed, and which of that is an effect;
* `changing`: what is another one from call to call;
* `impurity`: why a body cannot be skipped;
* `running`, `ending`: what happens in a call, and what is asked after it;
* `observer`: one call.
"""

from __future__ import annotations

from ...tensor import Outside
from .impurity import Impurity
from .observer import Observer, unwatched, writes_of
from .ops import is_unobserved

Outside.unwatched = staticmethod(unwatched)  # type: ignore[arg-type]

__all__ = ["Impurity", "Observer", "is_unobserved", "unwatched", "writes_of"]
