"""The names in a piece of code: variables, attributes of anything, imports and writes.

Code reaches what is outside by names alone: those of global variables and modules, of the variables of
functions around it, and of attributes. All of them stand in its code object, but for names that it computes.
"""

from __future__ import annotations

import dis
import types
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType

#: The name of ``sys.modules``.
MODULES = "modules"
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_NAME", "DELETE_NAME"})
_GLOBALS_WRITTEN = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"})
_ATTRIBUTES_WRITTEN = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_READING = _GLOBALS | _ATTRIBUTES | frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_VARIABLES_WRITTEN = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_FORMATTING = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"})
_OF_TEXTS = frozenset("str repr format ascii print format_map __str__ __repr__ __format__".split())
_ELEMENTS_WRITTEN = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR"})
#: What loads a key.
_KEYS = frozenset({"LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_SMALL_INT"})
_VARIABLES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF"})
_FAST_WRITTEN = ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR")
#: What takes the arguments of a call from the stack.
_CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"
#: Builtin functions that take an attribute by a name, which may stand in the code.
BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr"})
#: Attributes that are all attributes of a thing.
_EVERY = BY_NAME | frozenset(
    "__dict__ __getstate__ __reduce_ex__ __reduce__ __getattribute__ __getattr__ __setattr__ "
    "__delattr__".split()
)
#: Attributes that lead to variables which no name tells.
DENIED = frozenset(
    "__globals__ __closure__ cell_contents gi_frame cr_frame ag_frame f_back f_globals f_locals f_builtins "
    "tb_frame".split()
)
#: Strings longer than this are not names.
_LONGEST = 80
#: The deepest call of `getattr` whose arguments are followed, in instructions.
_FARTHEST = 12


@dataclass(slots=True)
class Names:
    """Of one code object, and of those of functions that it makes.

    Attributes
    ----------
    chains : set of tuple of str
        Global variables and builtins, each with the attributes that follow at once.
    attributes : set of str
        Attributes, and texts that may be names of such.
    stored : dict
        Of attributes and variables that it writes, the line where.
    loaded : set of str
        The attributes and global variables that it reads.
    used : set of str
        Those of which it does more than to append to what stands there.
    imports : set of (str, int)
        Modules, and how far up in its package each is looked for.
    elements : int or None
        The line where it first writes an element of something.
    is_wild : bool
        May it read or write an attribute whose name it computes?
    handles_errors : bool
        May it go on after an error of its own, as where a call does not fit a function?
    asks_classes : bool
        Does it ask whether something is of a class, otherwise than by calling a function?
    makes_texts : bool
        May it make texts of things?
    compares : bool
        May it ask whether two things are one?
    asks_identity : bool
        Does it ask so by ``is``?
    identified : set of str
        Variables and attributes that it compares so.
    keys : set of str
        What it looks up in ``sys.modules``.
    asked : set of (str, str)
        Parameters and globals that say what else it looks up there, inner functions left out: the
        instruction that loads each, and its name.
    shows_modules : bool
        May it do otherwise with ``sys.modules``?
    """

    chains: set[tuple[str, ...]] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    stored: dict[str, int] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    imports: set[tuple[str, int]] = field(default_factory=set)
    elements: int | None = None
    is_wild: bool = False
    handles_errors: bool = False
    asks_classes: bool = False
    makes_texts: bool = False
    compares: bool = False
    asks_identity: bool = False
    identified: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    asked: set[tuple[str, str]] = field(default_factory=set)
    shows_modules: bool = False

    @property
    def denied(self) -> set[str]:
        """Those of its attributes that lead where no walk can follow."""
        return self.loaded & DENIED

    def _add(self, code: CodeType) -> None:
        found = list(dis.get_instructions(code))
        line = code.co_firstlineno
        for index, step in enumerate(found):
            line = (step.positions.lineno if step.positions is not None else None) or line
            self._step(step, line, found, index)
        self._looks_up(code, found)
        for constant in code.co_consts:
            self._constant(constant)

    def _looks_up(self, code: CodeType, found: Sequence[dis.Instruction]) -> None:
        for step in (_key_looked_up(found, n) for n, step in enumerate(found) if _names_modules(step)):
            if step is not None and step.opname == "LOAD_CONST" and type(step.argval) is str:
                self.keys.add(step.argval)
            elif step is not None and _is_given(code, found, step):
                self.asked.add((step.opname, step.argval))
            else:
                self.shows_modules = True

    def _step(self, step: dis.Instruction, line: int, found: Sequence[dis.Instruction], index: int) -> None:
        kind, name = step.opname, step.argval
        if kind in _READING:
            self.loaded.add(name)
        if kind in _READING and not _is_appended_to(found, index):
            self.used.add(name)
        if kind in _GLOBALS or kind in _GLOBALS_WRITTEN:
            if kind in _GLOBALS_WRITTEN:
                self.stored.setdefault(name, line)
            else:
                self.loaded.add(name)
            self.makes_texts = self.makes_texts or name in _OF_TEXTS
            if name in BY_NAME and not _is_by_constant(found, index):
                self.is_wild = True
            self.chains.add((name, *_attributes_after(found, index)))
        elif kind in _ATTRIBUTES:
            self.attributes.add(name)
            self.loaded.add(name)
            self.is_wild = self.is_wild or name in _EVERY
            self.makes_texts = self.makes_texts or name in _OF_TEXTS
        elif kind in _ATTRIBUTES_WRITTEN:
            self.attributes.add(name)
            self.stored.setdefault(name, line)
        elif kind in _VARIABLES_WRITTEN:
            self.stored.setdefault(name, line)
        elif kind in _ELEMENTS_WRITTEN:
            self.elements = self.elements or line
        elif kind == "IMPORT_NAME":
            level = found[index - 2].argval if index > 1 else 0
            self.imports.add((name, level if type(level) is int else 0))
        elif kind == "CHECK_EXC_MATCH" or (kind == "PUSH_EXC_INFO" and found[index + 1].opname == "POP_TOP"):
            self.handles_errors = True
        elif kind in _FORMATTING or (kind == "BINARY_OP" and step.argrepr in ("%", "%=")):
            self.makes_texts = True
        elif kind == "CONTAINS_OP" or (kind == "IS_OP" and found[index - 1].opname != "LOAD_CONST"):
            self.compares = True
            self.asks_identity = self.asks_identity or kind == "IS_OP"
            if kind == "IS_OP":
                loaded = [before.argval for before in found[max(index - 2, 0) : index]]
                self.identified.update(name for name in loaded if type(name) is str)
        elif kind == "MATCH_CLASS":
            self.asks_classes = True
            self.attributes.add("__match_args__")

    def _constant(self, constant: object) -> None:
        if type(constant) is str and len(constant) < _LONGEST:
            words = [word for word in constant.split(".") if word.isidentifier()]
            self.attributes.update(words)
            self.loaded.update(words)
            self.used.update(words)
            self.shows_modules = self.shows_modules or MODULES in words
        elif type(constant) in (tuple, frozenset):
            for part in constant:  # type: ignore[attr-defined]
                self._constant(part)


def _attributes_after(found: Sequence[dis.Instruction], index: int) -> Iterator[str]:
    """Yield the names of the attributes that are read one after the other of what is loaded at `index`."""
    for step in found[index + 1 :]:
        if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            return
        yield step.argval


def _is_appended_to(found: Sequence[dis.Instruction], index: int) -> bool:
    """Return whether what is loaded at `index`, or an element of it, is only appended to."""
    while [step.opname for step in found[index + 2 : index + 3]] == ["BINARY_SUBSCR"]:
        if found[index + 1].opname not in _KEYS:
            return False
        index += 2
    return [*_attributes_after(found, index)][:1] == ["append"]


def _names_modules(step: dis.Instruction) -> bool:
    return step.argval == MODULES and step.opname in _READING


def _key_looked_up(steps: Sequence[dis.Instruction], index: int) -> dis.Instruction | None:
    """Return the instruction that loads the key for a lookup in the value loaded at `index`, or None."""
    after = [step for step in steps[index + 1 : index + 6] if step.opname != "PRECALL"]
    words = ["" if step.is_jump_target else step.opname for step in after] + [""] * 4
    if words[0] == "CONTAINS_OP":
        return _key_before(steps, index)
    if words[0] in _KEYS and words[1] == "BINARY_SUBSCR":
        return after[0]
    if words[0] not in ("LOAD_ATTR", "LOAD_METHOD") or after[0].argval != "get" or words[1] not in _KEYS:
        return None
    calls = words[2] == "CALL" or (words[2] == "LOAD_CONST" and words[3] == "CALL")
    return after[1] if calls else None


def _key_before(steps: Sequence[dis.Instruction], index: int) -> dis.Instruction | None:
    """Return the instruction that loads the key directly before a variable or its attribute, or None."""
    first = index - 1 if steps[index].opname == "LOAD_ATTR" else index
    is_reached = any(step.is_jump_target for step in steps[first : index + 1])
    is_variable = steps[first].opname in _VARIABLES and not is_reached
    return None if not is_variable or steps[first - 1].opname not in _KEYS else steps[first - 1]


def _is_given(code: CodeType, steps: Sequence[dis.Instruction], loaded: dis.Instruction) -> bool:
    """Return whether `loaded` loads a global, or a parameter of `code` that keeps its value."""
    name: str = loaded.argval
    if loaded.opname != "LOAD_FAST":
        return loaded.opname == "LOAD_GLOBAL"
    count = code.co_argcount + code.co_kwonlyargcount
    written = (step.argval for step in steps if step.opname.startswith(_FAST_WRITTEN))
    return name in code.co_varnames[:count] and not any(
        name == part or (isinstance(part, tuple) and name in part) for part in written
    )


def _is_by_constant(found: Sequence[dis.Instruction], index: int) -> bool:
    """Return whether what is loaded at `index` is called at once, with a literal as second argument."""
    depth, second = 0, False
    for step in found[index + 1 : index + 1 + _FARTHEST]:
        if step.opname == _CALL and step.arg == depth:
            return second
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return False
        before = depth
        depth += dis.stack_effect(step.opcode, step.arg)
        if depth < 1:
            return False
        if depth <= 2:
            second = before == 1 and depth == 2 and step.opname == "LOAD_CONST" and type(step.argval) is str
    return False


_known: weakref.WeakKeyDictionary[CodeType, Names] = weakref.WeakKeyDictionary()


def names_of(code: CodeType) -> Names:
    """Return the names that `code` can reach, and the functions that it makes."""
    known = _known.get(code)
    if known is None:
        known = Names()
        for part in [*codes_in(code)][::-1]:
            known.asked = set()
            known._add(part)
        _known[code] = known
    return known


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code, and those of the functions and classes that it makes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)
