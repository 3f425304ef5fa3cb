"""Answers that a solution makes up, for `test_forged.py`: what it sends, returns and raises."""

#: Replaces what writes answers: `Raw` bytes are sent as a value, an `Answer` in place of all of it.
PRELUDE = """
import struct, sys
plain = sys.modules["inside.plain"]
real_write = plain.write
def size(n): return struct.pack("<I", n)
class Raw:
    def __init__(self, data): self.data = data
class Answer:
    def __init__(self, value): self.value = value
def forged_write(value, stand_in):
    if type(value) is tuple and len(value) == 2:
        if type(value[1]) is Raw:
            return b"(" + size(2) + b"s" + size(5) + b"value" + value[1].data
        if type(value[1]) is Answer:
            made = value[1].value
            return made if type(made) is bytes else real_write(made, stand_in)
    return real_write(value, stand_in)
plain.write = forged_write
"""
#: Writes a message, or anything else, to every descriptor there is.
SPEAK = """
import os
def speak(data, framed=True, stay=False):
    for fd in range(3, 64):
        attempt(lambda: os.write(fd, (size(len(data)) if framed else b"") + data))
    if stay:
        while True: sys.modules["inside.plain"].Wire.receive(wire)
import gc
wire = next(x for x in gc.get_objects() if type(x).__name__ == "Wire")
"""

ASKED = "answer = f(2)\nassert answer == 2 and type(answer) is int"


def raw(data: str) -> tuple[str, str]:
    return f"def f(x): return Raw({data})", ASKED


def answered(value: str) -> tuple[str, str]:
    return f"def f(x): return Answer({value})", ASKED


def raised(error: str, tests: str) -> tuple[str, str]:
    return f"def f(x=0, *a): raise {error}", tests


def valued(value: str, tests: str = "assert f(2) == 2", before: str = "") -> tuple[str, str]:
    return f"{before}\ndef f(x=0): return {value}", tests


#: Bytes that are no plain value, or none that is 2.
BYTES = {
    "nothing": raw("b''"),
    "an unknown mark": raw("b'x' + size(0)"),
    "a mark of the old talk: a module": raw("b'x(' + size(2) + b's' + size(6) + b'module'"),
    "an integer that is cut off": raw("b'i' + size(8) + b'2'"),
    "an integer without a size": raw("b'i'"),
    "a number of two bytes: infinity in half precision": raw("b'f' + size(2) + b'\\x00\\x7c'"),
    "a number of four bytes": raw("b'f' + size(4) + struct.pack('<f', 2)"),
    "a number of no bytes": raw("b'f' + size(0)"),
    "not a number": raw("b'f' + size(8) + struct.pack('<d', float('nan'))"),
    "infinity": raw("b'f' + size(8) + struct.pack('<d', float('inf'))"),
    "a complex number of one part": raw("b'c' + size(8) + struct.pack('<d', 2)"),
    "a list of four thousand million items": raw("b'[' + size(2**32 - 1)"),
    "a list of many items": raw("b'[' + size(10**5) + (b'N' + size(0)) * 10**5"),
    "a list that has no end": raw("b'[' + size(1)"),
    "a million lists in one another": raw("(b'[' + size(1)) * 10**6 + b'N' + size(0)"),
    "a million opaque ones in one another": raw("(b'o' + size(0)) * 10**6 + b'N' + size(0)"),
    "a set of lists": raw("b'{' + size(1) + b'[' + size(0)"),
    "a frozen set of dictionaries": raw("b'z' + size(1) + b'd' + size(0)"),
    "a dictionary of an odd number of parts": raw("b'd' + size(1) + b'N' + size(0)"),
    "a dictionary whose key is a list": raw("b'd' + size(2) + b'[' + size(0) + b'N' + size(0)"),
    "a text that is none": raw("b's' + size(2) + b'\\xff\\xfe'"),
    "more behind the end": raw("b'i' + size(1) + b'\\2' + b'\\0'"),
    "an object whose number is an object": raw("b'o' + size(0) + b'o' + size(0) + b'N' + size(0)"),
    "an object whose number is a list": raw("b'o' + size(0) + b'[' + size(0)"),
    "an object whose number is none": raw("b'o' + size(0) + b'N' + size(0)"),
    "an object with the name of an answer": raw("b'o' + size(0) + b's' + size(6) + b'answer'"),
    "an object of a number without end": raw("b'o' + size(0) + b'i' + size(1000) + b'1' * 1000"),
    "an integer of ten million bytes": raw("b'i' + size(10**7) + b'\\1' * 10**7"),
    "a pickle": raw("__import__('pickle').dumps(print)"),
    "a compiled program": raw("__import__('marshal').dumps(compile('2', '', 'eval'))"),
}
#: Answers of another form.
ANSWERS = {
    "no answer": answered("b''"),
    "a plain 2": answered("2"),
    "a list of two": answered("['value', 2]"),
    "a text of two letters": answered("'ok'"),
    "three parts": answered("('value', 2, 2)"),
    "one part": answered("('value',)"),
    "the word of a pass": answered("b'passed'"),
    "a kind that is an object": answered("(object(), 1)"),
    "a kind that is a list": answered("(['value'], 1)"),
    "a function in place of a value": answered("('function', None)"),
    "a name that is missing": answered("('missing', None)"),
    "an error that is a text": answered("('error', 'x')"),
    "an error that is 2": answered("('error', 2)"),
    "an error whose name is a list": answered("('error', (['x'], '', ()))"),
    "an error whose name is a function": answered("('error', ('__import__', 'os', ()))"),
    "an error whose text is an object": answered("('error', ('ValueError', object(), 3))"),
    "an error whose text is a huge number": answered("('error', ('ValueError', 10**5000, ()))"),
    "an error whose places are no places": answered("('error', ('ValueError', '', (1, 2)))"),
    "an error whose line is a text": answered("('error', ('ValueError', '', (('f', 'x'),)))"),
}
WHOLE = "assert all(map(lambda case: f(case) == 2 * case, [1, 2]))"
#: Errors that would lead the tests past an assertion.
ERRORS = {
    "the end of an iteration, in `map`": raised("StopIteration", WHOLE),
    "its subclass": raised("type('ValueError', (StopIteration,), {})('x')", WHOLE),
    "the end of an asynchronous iteration": raised("StopAsyncIteration", WHOLE),
    "the end of a generator": raised("GeneratorExit", WHOLE),
    "the end of a loop": raised(
        "StopIteration", "def check(x):\n    assert f(x) == 2\nfor _ in map(check, [1]): pass"
    ),
    "an end with success": raised("SystemExit(0)", "assert f(1) == 2"),
    "an interrupt": raised("KeyboardInterrupt", "assert f(1) == 2"),
    "a test to be skipped": raised(
        "__import__('unittest').SkipTest('later')",
        """
        import unittest
        class Test(unittest.TestCase):
            def test(self):
                self.assertEqual(f(), 2)
        run = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Test).run(run)
        assert run.testsRun == 1 and run.wasSuccessful() and not run.skipped
        """,
    ),
    "a group": raised("ExceptionGroup('', [StopIteration()])", WHOLE),
    "a text that says it passed": raised("ValueError('passed\\nended 0 1')", "assert f(1) == 2"),
    "what cannot be told": raised(
        "type('E', (Exception,), {'__str__': lambda self: 1 / 0})", "assert f(1) == 2"
    ),
    "an error of the judge": raised("plain.PeerGone('x')", "assert f(1) == 2"),
    "a name that only fails": (
        "f = 1\nclass D(dict): pass\nsys.modules['solution'].__dict__['f'] = Answer(('error', 1))",
        "assert f == 2",
    ),
    "an error for a name": (
        "f = Answer(('error', ('StopIteration', '', ())))",
        "assert all(f == 2 for _ in [1])\nassert f == 2",
    ),
}
#: Values that would be equal to 2 if the tests asked them.
AGREEABLE = """
class Two:
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda *a: True
    __ne__ = lambda *a: False
    __hash__ = lambda self: hash(2)
    __sub__ = __rsub__ = __mod__ = lambda *a: 0
    __int__ = __index__ = __len__ = __abs__ = lambda self: 2
    __float__ = lambda self: 2.0
    __iter__ = lambda self: iter([2])
    __array_interface__ = property(lambda self: {
        "data": (id(2) + 24, False), "shape": (1,), "typestr": "<i4", "version": 3})
"""
NEAR = "assert abs(f(2) - 2) < 1e-6"
VALUES = {
    "an object that agrees": valued("Two()", before=AGREEABLE),
    "one that claims to be an integer": valued(
        "I()", before=f"{AGREEABLE}\nclass I(Two): __class__ = int"
    ),
    "one that is near everything": valued("Two()", NEAR, AGREEABLE),
    "one that is never unequal": valued("Two()", "assert not f(2) != 2", AGREEABLE),
    "one that is in a list": valued("[Two()]", "assert f(2) == [2]", AGREEABLE),
    "one that contains everything": valued("Two()", "assert 2 in f(2)", AGREEABLE),
    "one that is a key": valued("{Two(): 1}", "assert f(2) == {2: 1}", AGREEABLE),
    "one in a set": valued("{Two()}", "assert f(2) == {2}", AGREEABLE),
    "one that is true": valued("Two()", "assert f(2)", AGREEABLE),
    "one that is false": valued("[Two()]", "assert not f(2)[0]", AGREEABLE),
    "its own number": valued(
        "Two()", "import operator\nassert operator.index(f()) == 2", AGREEABLE
    ),
    "one of numpy's interfaces": valued(
        "Two()", "import array\nassert array.array('i', f(2))[0] == 2", AGREEABLE
    ),
    "an integer of its own": valued("I(1)", before="class I(int): __eq__ = lambda *a: True"),
    "an integer that lies when converted": valued(
        "I(1)", before="class I(int): __int__ = __index__ = lambda *a: 2"
    ),
    "a text of its own": valued(
        "S('1')", "assert f(2) == '2'", "class S(str): __eq__ = lambda *a: True"
    ),
    "a text that lies when converted": valued(
        "S('1')", "assert f(2) == '2'", "class S(str): __str__ = __repr__ = lambda *a: '2'"
    ),
    "a list that lies when read": valued(
        "L([1])", "assert f(2) == [2]", "class L(list): __iter__ = lambda *a: iter([2])"
    ),
    "a dictionary that has every key": valued(
        "D()", "assert f(2)[2] == 2", "class D(dict): __missing__ = lambda *a: 2"
    ),
    "a tuple that lies of its length": valued(
        "T([1])", "assert len(f(2)) == 2", "class T(tuple): __len__ = lambda *a: 2"
    ),
    "anything": valued("__import__('unittest.mock').mock.ANY"),
    "a decimal infinity": valued("__import__('decimal').Decimal('inf')", "assert f(2) > 65520"),
    "a signalling decimal": valued("__import__('decimal').Decimal('sNaN')", "assert f(2) == 2"),
    "what is not implemented": valued("NotImplemented", "assert f(2).__bool__()"),
    "a class that has every instance": valued(
        "C",
        "assert isinstance(2, f(2))",
        "class M(type): __instancecheck__ = lambda *a: True\nclass C(metaclass=M): pass",
    ),
    "a proxy": valued(
        "weakref.proxy(keep)",
        before=f"import weakref\n{AGREEABLE}\nclass I(Two): __class__ = int\nkeep = I()",
    ),
    "a coroutine": ("async def f(x): return 2", "assert f(2) == 2"),
    "a generator": ("def f(x): yield 2", "assert list(f(2)) == [2]"),
    "a block that hides errors": valued(
        "B()", "with f(2):\n    assert 1 == 2", "class B: __enter__ = __exit__ = lambda *a: True"
    ),
    "an iterator that ends at once": valued("iter([])", "for x in f(2):\n    assert x == 2"),
    "an object whose number is the answer": valued(
        "Raw(b'o' + size(0) + b'i' + size(1) + b'\\2')",
        "x = f(2)\nassert getattr(x, 'key', getattr(x, 'number', getattr(x, 'value', None))) == 2",
    ),
    "a function that is called as the judge's is": valued("f", "assert f(2).solution"),
    "builtins beside the one under test": (
        "def sum(x): return 1\ndef set(x): return 1",
        "assert set(sum([1, 1])) == set([2])",
    ),
    "a builtin in place of the one under test": (
        "def set(x): return 1",
        "assert set(sorted([1, 1])) == set([2])",
    ),
    "the function itself": valued("f"),
    "the module itself": valued("sys.modules['solution']", "assert f(2).f"),
    "the talk itself": valued("plain", "assert f(2).write"),
    "a decimal that fails in the judge": valued(
        "Raw(b'x(' + size(3) + b's' + size(4) + b'text')", "assert f('x') == 2"
    ),
}
#: Answers to questions that come later, or were never asked.
TALK = {
    "an answer before it is asked": (f"{SPEAK}\nspeak(b'1' + size(0))\ndef f(x): return 1", ASKED),
    "answers to all that may come": (
        f"{SPEAK}\nfor _ in range(50): speak(real_write(('value', 1), None))\ndef f(x): return 1",
        ASKED,
    ),
    "a message of a size that cannot be": (
        f"{SPEAK}\ndef f(x):\n    speak(size(2**32 - 1), framed=False)\n    return 1",
        ASKED,
    ),
    "half a message, and its end": (
        f"{SPEAK}\ndef f(x):\n    speak(size(100) + b'(', framed=False)\n    os._exit(0)",
        ASKED,
    ),
    "the verdict in place of an answer": (
        f"{SPEAK}\ndef f(x):\n    speak(b'passed', framed=False)\n    os._exit(0)",
        ASKED,
    ),
    "an end while a test catches everything": (
        "import os\ndef f(x): os._exit(0)",
        "try:\n    assert f(1) == 2\nexcept BaseException:\n    pass",
    ),
    "noise while a test catches everything": (
        "def f(x): return Raw(b'x')",
        "try:\n    assert f(1) == 2\nexcept BaseException:\n    pass",
    ),
    "much memory, while a test catches everything": (
        "def f(x): return Raw(b'[' + size(10**5) + (b'[' + size(0)) * 10**5)",
        "try:\n    assert f(1) == 2\nexcept BaseException:\n    pass",
    ),
    "a question of its own": (
        f"{SPEAK}\nspeak(real_write(('expected', None), None))\n"
        "def f(x): return plain.read(wire.receive())",
        f"expected = 2\n{ASKED}",
    ),
    "other names, behind the tests' back": (
        "class Names(dict):\n    __missing__ = lambda *a: 2\n    __contains__ = lambda *a: True\n"
        "import gc\nfor x in gc.get_objects():\n"
        "    if type(x).__name__ == 'Served': x.names = Names()",
        "assert f(2) == 2",
    ),
}
FORGERIES = {
    f"{kind}: {name}": forgery
    for kind, those in {
        "bytes": BYTES,
        "answer": ANSWERS,
        "error": ERRORS,
        "value": VALUES,
        "talk": TALK,
    }.items()
    for name, forgery in those.items()
}
