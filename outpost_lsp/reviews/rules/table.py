"""The rules of the offline review and how bad each is: the one place to read and to change them.

One row per rule of ruff: its code, and what it means for the program in one line. `{0}` and `{1}` stand for the names
that ruff's message puts in backticks. The table says which rules run and how they are shown; `review.rules.ruff` runs
them. Rules of our own bring their words along and are listed in `OWN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from outpost_lsp.domain.finding import Severity

CONFIDENCE: Final[Mapping[Severity, float]] = MappingProxyType(
    {"error": 0.9, "warning": 0.7, "information": 0.5, "hint": 0.5}
)
"""Fixed per severity: a rule's confidence, not a judgement."""

_ERRORS: Final = """
F502 Formatting fails: the `%` string wants a mapping and gets a sequence
F503 Formatting fails: the `%` string wants a sequence and gets a mapping
F504 A named argument of the `%` formatting is never shown
F505 Formatting raises KeyError: an argument of the `%` string is missing
F506 Formatting fails: the `%` string mixes named and positional placeholders
F507 Formatting raises TypeError: the `%` string and its arguments differ in number
F508 Formatting fails: `*` in the `%` string needs a sequence
F509 Formatting raises ValueError: the `%` string holds an unknown format character
F521 `.format` raises ValueError: its string is malformed
F522 A named argument of `.format` is never shown
F523 An argument of `.format` is never shown
F524 `.format` raises IndexError or KeyError: an argument is missing
F525 `.format` raises ValueError: automatic and manual numbering are mixed
F601 The earlier value is lost: the key stands twice in this dictionary
F602 The earlier value is lost: the key stands twice in this dictionary
F621 Unpacking fails: too many names before the star
F622 The module cannot be imported: two starred names in one assignment
F631 This assertion can never fail: it tests a tuple
F632 The comparison depends on the interpreter: `is` with a literal compares identity
F633 Printing fails: `>>` with print() is Python 2
F634 The condition is always true: it is a tuple
F701 The module cannot be imported: `break` outside a loop
F702 The module cannot be imported: `continue` outside a loop
F704 The module cannot be imported: `{0}` outside a function
F706 The module cannot be imported: `return` outside a function
F707 The module cannot be imported: a bare `except` stands before other handlers
F722 The annotation cannot be evaluated: it does not parse
F811 The earlier `{0}` is never used: this definition replaces it
F821 `{0}` is not defined here: the line raises NameError when it runs
F823 `{0}` has no value yet: the line raises UnboundLocalError
F901 Raises TypeError in place of the error meant: NotImplemented is no exception
E902 The file cannot be read
PLE0100 Creating an object fails: `__init__` is a generator
PLE0101 Creating an object fails: `__init__` returns a value
PLE0115 The module cannot be imported: `{0}` is both nonlocal and global
PLE0116 The module cannot be imported: `continue` in `finally`
PLE0117 The module cannot be imported: nonlocal `{0}` has no binding
PLE0118 The module cannot be imported: `{0}` is used before it is declared global
PLE0237 Assigning `{0}` raises AttributeError: `__slots__` does not name it
PLE0241 The class cannot be created: base `{0}` stands twice
PLE0302 Calling the special method fails: it has the wrong number of parameters
PLE0303 len() raises TypeError: `__len__` returns something else
PLE0304 bool() raises TypeError: `__bool__` returns something else
PLE0305 Using it as an index raises TypeError: `__index__` returns something else
PLE0307 str() raises TypeError: `__str__` returns something else
PLE0308 bytes() raises TypeError: `__bytes__` returns something else
PLE0309 hash() raises TypeError: `__hash__` returns something else
PLE0604 `from module import *` fails: `__all__` holds something that is no string
PLE0605 `from module import *` fails: `__all__` is neither a list nor a tuple
PLE0643 The index lies beyond the end: IndexError
PLE0704 A bare `raise` outside a handler raises RuntimeError
PLE1132 The call raises TypeError: the keyword `{0}` is passed twice
PLE1142 The module cannot be imported: `await` outside an async function
PLE1205 The message is lost: logging gets more arguments than it has placeholders for
PLE1206 The message is lost: logging gets fewer arguments than it has placeholders
PLE1300 Formatting raises ValueError: unsupported format character
PLE1307 Formatting raises TypeError: the placeholder and its argument do not fit
PLE1310 strip() removes single characters, not this word
PLE1507 os.getenv raises TypeError: the name is no string
PLE1519 Dispatch looks at `self`: singledispatch on a method
PLE1520 Dispatch fails: singledispatchmethod on a plain function
PLE1700 The module cannot be imported: `yield from` in an async function
PLE2502 The code reads differently from how it runs: it holds characters that turn the direction of text
PLE2510 An invisible backspace stands in the text
PLE2512 An invisible SUB character stands in the text
PLE2513 An invisible ESC character stands in the text
PLE2514 A NUL character stands in the text
PLE2515 An invisible zero-width space stands in the text
N805 The object arrives in the wrong parameter: a method's first parameter is not `self`
N804 The class arrives in the wrong parameter: a class method's first parameter is not `cls`
B005 strip() with several characters removes any of them, not the word
B012 An exception is swallowed: `{0}` inside `finally`
B015 The comparison has no effect: its result is thrown away
B020 The loop overwrites what it iterates over: `{0}`
B023 Every call sees the last value: the function does not bind loop variable `{0}`
B025 The second handler never runs: the exception `{0}` is caught above
B026 The arguments arrive in another order than written: `*` after a keyword
B029 Nothing is caught: the handler names an empty tuple
B030 Handling the exception raises TypeError: the handler names no exception class
B031 The second pass sees nothing: a group of groupby() can be read once
B032 Nothing is assigned: this is an annotation
B035 All but the last entry are lost: the key never changes in the comprehension
B909 Entries are skipped or RuntimeError is raised: `{0}` changes while it is iterated
B002 Nothing is incremented: `++` is two plus signs
B004 The check misjudges objects: hasattr(x, "__call__") is not callable(x)
B006 The default value is shared between all calls and keeps their changes
B016 Raises TypeError in place of the error meant: a literal cannot be raised
B021 The function has no docstring: an f-string is none
B022 Nothing is suppressed: contextlib.suppress() without an exception
B039 The default of the ContextVar is shared between contexts
PLR0124 The result never varies: the value is compared with itself
PLR1708 Callers get RuntimeError: StopIteration raised inside a generator
PLR0206 Reading the property raises TypeError: it has parameters
PLW0127 The assignment has no effect: `{0}` is assigned to itself
PLW0128 The first value is lost: `{0}` stands twice in the assignment
PLW0129 The assertion never varies: it tests a string literal
PLW0131 The named value is thrown away
PLW0133 Nothing is raised: `raise` is missing before the exception
PLW0177 The comparison with NaN never varies
PLW0211 The object does not arrive: a static method's first parameter is named like a bound one
PLW0245 AttributeError: `super` is not called
PLW0406 Import fails or sees a half-made module: `{0}` imports itself
PLW0711 Only one of the exceptions is caught: they are joined by `and` or `or`
PLW1501 open() raises ValueError: `{0}` is no mode
PLW1507 Changes to the copy reach the real environment
PLW1508 The default has another type than the value: environment variables are strings
PLW1509 The child may deadlock: preexec_fn is unsafe with threads
PLW2101 Nothing is locked: the lock is created in the `with` itself
RUF006 The task may vanish before it is done: nothing holds a reference
RUF008 The default value is shared between all instances
RUF016 Indexing raises TypeError: the index has the wrong type
RUF018 The assignment vanishes under `-O`: it stands inside an assertion
RUF024 All keys share one value: a mutable object in dict.fromkeys
RUF026 The default factory is not set: defaultdict takes it by position only
RUF027 The braces are shown as they stand: the string lacks its `f`
RUF034 Both branches give the same value
RUF040 The assertion's message is no text
RUF049 The members are not what they seem: a dataclass that is an enum
RUF060 The test never varies: the collection is empty
RUF064 The permissions are not the ones meant: the mode is not octal
RUF066 Reading the property gives None: it returns nothing
ASYNC100 The timeout never fires: nothing is awaited inside it
ASYNC105 Nothing happens: the coroutine is not awaited
ASYNC210 Every other task waits: blocking HTTP call in an async function
ASYNC212 Every other task waits: blocking HTTP call in an async function
ASYNC220 Every other task waits: blocking process call in an async function
ASYNC221 Every other task waits: blocking process call in an async function
ASYNC222 Every other task waits: blocking wait for a process in an async function
ASYNC250 Every other task waits: input() in an async function
ASYNC251 Every other task waits: time.sleep() in an async function
SIM220 The condition is always false: a value and its opposite
SIM221 The condition is always true: a value or its opposite
SIM222 The condition never varies: one side of `or` is always true
SIM223 The condition never varies: one side of `and` is always false
PIE794 The earlier value is lost: field `{0}` is defined twice in this class
PIE796 Two members are one: the value `{0}` stands twice in this enum
INT001 The text is never translated: it is formatted before the look-up
INT002 The text is never translated: it is formatted before the look-up
INT003 The text is never translated: it is formatted before the look-up
LOG001 The logger stands outside the hierarchy: its handlers and levels do not apply
LOG002 The logger has the wrong name
LOG014 The log shows no exception: exc_info outside a handler
G101 Logging raises KeyError: `extra` overwrites `{0}`
G202 The exception is said twice: logging.exception() logs it already
YTT101 Breaks with two-digit minor versions: a slice of sys.version
YTT102 Breaks with two-digit minor versions: a character of sys.version
YTT103 Compares versions as text: 3.10 comes before 3.9
YTT301 Breaks with two-digit major versions: a character of sys.version
YTT302 Compares versions as text
YTT303 Breaks with two-digit major versions: a slice of sys.version
FAST003 The path parameter `{0}` never arrives: the function does not name it
T100 The program stops here and waits: a debugger call was left in
"""

_WARNINGS: Final = """
B014 The handler names `{0}` twice
B018 The expression has no effect: its result is thrown away
B003 The environment is not cleared: os.environ is only rebound
B033 The value `{0}` stands twice in this set
E722 Everything is caught, KeyboardInterrupt and SystemExit too
F841 `{0}` is assigned and never read
DTZ003 The time carries no zone and reads as local time: utcnow()
DTZ004 The time carries no zone and reads as local time: utcfromtimestamp()
S103 Anyone on the machine may change the file
S104 The service listens on every interface
S113 The request may wait for ever: it has no timeout
S201 Anyone who reaches the server can run code: Flask's debug mode
S302 Loading it may crash or run code: marshal on data from outside
S306 Another process can take the name first: mktemp()
S307 Whoever writes the text runs code: eval()
S310 The address may be a local file: urlopen accepts any scheme
S314 Hostile XML may exhaust memory: the standard parser expands entities
S317 Hostile XML may exhaust memory: the standard parser expands entities
S318 Hostile XML may exhaust memory: the standard parser expands entities
S319 Hostile XML may exhaust memory: the standard parser expands entities
S323 Certificates are not checked
S324 Collisions can be made: a broken hash function
S501 Certificates are not checked: anyone in between can read and change the traffic
S502 The connection can be broken: an old version of TLS
S503 The connection can be broken: an old version of TLS by default
S504 The connection can be broken: the version of TLS is left open
S505 The key can be broken: it is too short
S506 Whoever writes the file runs code: yaml.load with an unsafe loader
S507 Anyone can answer as the host: unknown host keys are accepted
S508 Messages can be read and forged: SNMP before version 3
S509 Messages can be read: SNMPv3 without encryption
S602 Text from outside may reach a shell
S604 Text from outside may reach a shell
S605 Text from outside may reach a shell
S608 Text from outside may become SQL: the query is put together as a string
S609 A file name may become an option: `*` is expanded by a shell
S610 Text from outside may become SQL: extra()
S611 Text from outside may become SQL: RawSQL
S612 Anyone who reaches the port can run code: logging.config.listen
S701 Text from outside may become HTML: autoescape is off
S702 Text from outside may become HTML: Mako does not escape
S704 Text from outside may become HTML: `{0}` on a value that is not constant
"""

_INFORMATION: Final = """
S102 Code made at run time is executed
S110 The error is swallowed without a word
S112 The error is swallowed without a word
S202 The archive may write outside its folder: extractall()
S301 Whoever writes the data runs code: pickle
B017 Any exception passes this test, the wrong one too
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ruff, how bad it is, and what it means."""

    code: str
    severity: Severity
    title: str


def _rows(text: str, severity: Severity) -> dict[str, Rule]:
    found = {}
    for line in text.strip().splitlines():
        code, title = line.split(" ", 1)
        found[code] = Rule(code, severity, title)
    return found


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    _rows(_ERRORS, "error") | _rows(_WARNINGS, "warning") | _rows(_INFORMATION, "information")
)
"""By ruff's code."""

HABITS: Final = frozenset(
    (
        "E722",
        "F841",
        "DTZ003",
        "DTZ004",
        "S103",
        "S104",
        "S302",
        "S306",
        "S307",
        "S310",
        "S314",
        "S317",
        "S318",
        "S319",
        "S324",
    )
)
"""Warnings about what works and may be meant. In code that stands they are many and seldom a fault (they were three of
four warnings on the standard library), so there they are information; where a change brings them they stay warnings."""

SAID_ONCE: Final = frozenset(("F821", "B033"))
"""One fault of these shows in many lines: it is reported at the first and names the others."""
