"""The reward for code: right, wrong and odd code, against tests and cases."""

import pytest

from pgax.rewards.code import Code, extract_code
from pgax.rewards.pool import Job, Pool
from pgax.sandbox import LEVELS, IsolationWarning, Limits, available, best_level

CODE = Code(partial=True)


def passed(code, *tests, **metadata):
  return CODE("", code, "", {"tests": tests} | metadata)["passed"]


@pytest.mark.parametrize(
  ("completion", "code"),
  [
    ("x = 1", "x = 1"),
    ("So:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
    ("```\nx = 1\n```\n```py\nx = 2\n```", "x = 2\n"),
    ("```python\nx = 1\n```<answer>x = 3</answer>", "x = 3"),
    ("<answer>\n```python\nx = 4\n```</answer>", "x = 4\n"),
    ("In <answer> tags: <answer>x = 5</answer>", "x = 5"),
    ("```bash\npip install x\n```\nThen\n```python\nx = 1\n```", "x = 1\n"),
    ("```python\nx = 1\n```\nand\n```json\n{}\n```\n", "x = 1\n"),
    ("```Python\nx = 1\n```", "x = 1\n"),
    ("```python3 \nx = 1\n```", "x = 1\n"),
    ("```python title=a\nx = 1\n```", "x = 1\n"),
    ("So:\r\n```python\r\nx = 1\r\ny = 2\r\n```\r\n", "x = 1\ny = 2\n"),
    ("```\nx = 1\n```\n```python\nx = 2", "x = 2\n"),
    ("```python\nx = 1\n```\nDone.\n```", "x = 1\n"),
    ("```text\nnot closed\n```python\nx = 1\n```", "x = 1\n"),
    ("Code: ```python\nx = 1```", "x = 1\n"),
    ("- a\n  ```py\n  if x:\n    y\n  ```", "if x:\n  y\n"),
    ('```py\ndef f():\n  """\n    ```\n  """\n```', 'def f():\n  """\n    ```\n  """\n'),
    ("````py\nx = 1\n```\n````", "x = 1\n```\n"),
    ("An `a`, and ```b```.\n```\nx = 1\n```<|end|>", "x = 1\n"),
    ("```py\nx = 1\n```\nThis was ```python\n", "x = 1\n"),
    ("```bash\nls\n```", "```bash\nls\n```"),
    ("```python\nprint(3)\n```\nOutput:\n```\n3\n```", "print(3)\n"),
    ("```python:main.py\nx = 1\n```", "x = 1\n"),
    ("```{.python}\nx = 1\n```", "x = 1\n"),
    ("1. so\n\t```py3\n\tx = 1\n\t```", "x = 1\n"),
  ],
)
def test_code_is_extracted_from_free_text(completion, code):
  assert extract_code(completion) == code


VECTOR = """
class V:
  def __init__(self, x): self.x = x
  def __lt__(self, other): return self.x < getattr(other, "x", other)
  def __gt__(self, other): return self.x > getattr(other, "x", other)
  def __le__(self, other): return self.x <= getattr(other, "x", other)
  def __add__(self, other): return V(self.x + other.x)
  def __iadd__(self, other):
    self.x += other.x
    return self
  def __rmul__(self, other): return V(self.x * other)
  def __neg__(self): return V(-self.x)
  def __float__(self): return float(self.x)
  def __contains__(self, x): return x == self.x
  def __enter__(self):
    self.x = 5
    return self
  def __exit__(self, kind, value, traceback): self.x = 6
"""


@pytest.mark.parametrize(
  ("code", "test"),
  [
    ("def add(a, b): return a + b", "assert add(1, 2) == 3"),
    ("def f(x): return {1: (x, [x])}", "assert f(2.5) == {1: (2.5, [2.5])}"),
    ("def f(): return {1, 2}, b'a', 1j, None, 2**100", "assert f()[4] == 2**100"),
    (
      "from fractions import Fraction\ndef f(): return Fraction(1, 3)",
      "from fractions import Fraction\nassert f() * 3 == 1 and isinstance(f(), Fraction)",
    ),
    ("def f(x): x.sort()", "a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]"),
    ("def f(x): x[0][0] = 5", "a = [[1], [2]]\nf(a)\nassert a == [[5], [2]]"),
    ("def f(d): d['a'] = 1", "d = {}\nf(d)\nassert d == {'a': 1}"),
    ("def f(*, x): x.sort()", "a = [3, 1]\nf(x=a)\nassert a == [1, 3]"),
    ("def f(n): return range(n)", "assert f(3) == range(3) and list(f(5)[:2]) == [0, 1]"),
    (
      "class L:\n  def __getitem__(self, i): return [i.start, i.stop]\ndef f(): return L()",
      "assert f()[:2] == [None, 2]",
    ),
    (VECTOR, "assert V(1) < V(2) and V(1) <= V(1) and not V(2) < V(1)"),
    (VECTOR, "assert (V(1) + V(2) + V(4)).x == 7 and (2 * V(3)).x == 6"),
    (VECTOR, "assert (-V(1)).x == -1 and float(V(2)) == 2.0 and 3 in V(3)"),
    (VECTOR, "assert 4 not in V(3)\nv = V(3)\ndel v.x\nassert not hasattr(v, 'x')"),
    (VECTOR, "v = V(1)\nw = v\nv += V(2)\nassert w.x == 3"),
    (VECTOR, "with V(1) as v: assert v.x == 5\nassert v.x == 6"),
    (
      "import contextlib\n@contextlib.contextmanager\ndef f():\n  yield 1",
      "with f() as x: assert x == 1",
    ),
    ("def f(n): yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
    (
      "def f(n): raise ValueError('no')",
      "try:\n  f(1)\n  assert 0\nexcept ValueError: pass",
    ),
    ("class E(KeyError): pass\ndef f(): raise E", "try:\n  f()\nexcept KeyError: pass"),
    (
      "class Stack:\n  def __init__(self): self.items = []\n"
      "  def push(self, x): self.items.append(x)\n  def __len__(self): return 7",
      "s = Stack()\ns.push(3)\nassert s.items == [3] and len(s) == 7",
    ),
    ("def f(x=1, *, y): return x - y", "assert f(y=2) == -1"),
    ("import math\ndef f(x): return math.sqrt(x)", "assert math.isclose(f(2), 2**0.5)"),
    ("def solve(x): return x + 1", "def check(f):\n  assert f(1) == 2\ncheck(solve)"),
    ("def a(x): return x\ndef b(x): return a(x)", "assert b(a(1)) == 1"),
    ("LIMIT = 3", "assert LIMIT == 3"),
    (
      "import collections\nP = collections.namedtuple('P', 'x')\ndef f(): return P(1)",
      "assert f() == (1,)",
    ),
    ("def f(): print('noise'); return 1", "assert f() == 1"),
    ("def f(x): return x", "assert f('\\ud800\\u20ac') == '\\ud800\\u20ac'"),
  ],
)
def test_supported_tests(code, test):
  assert passed(code, test) == 1.0
  assert passed(code, "assert False") == 0.0


@pytest.mark.parametrize(
  "code",
  ["def add(a, b): return a - b", "def add(a, b): return", "def ad(a): pass", "def (", ""],
)
def test_wrong_code_fails(code):
  assert passed(code, "assert add(1, 2) == 3") == 0.0


@pytest.mark.parametrize(
  ("code", "test"),
  [
    ("def f(n): return range(n)", "assert f(5)[:2] == [0, 1]"),
    ("class T:\n  sort = dict\ndef f(n): return T()", "f(5).sort(key=lambda x: x)"),
    (
      "class T:\n  def __setitem__(self, i, x): pass\ndef f(n): return T()",
      "f(5)[0] = abs",
    ),
  ],
)
def test_odd_return_values_are_not_the_fault_of_the_tests(code, test):
  assert passed(code, f"{test}\nassert False", "assert f(1) is not None") == 0.5


UNITTEST = """
import unittest
class AddTest(unittest.TestCase):
  def test_add(self):
    self.assertEqual(add(1, 2), 3)
if __name__ == "__main__":
  unittest.main()
"""


@pytest.mark.parametrize(
  "test",
  [
    UNITTEST,
    "if __name__ == '__main__': assert add(1, 2) == 3",
    "def test():\n  assert add(1, 2) == 3\nif __name__ != '__main__': exit()\ntest()",
    "if add(1, 2) != 3: exit('wrong')",
  ],
)
def test_tests_run_as_the_main_module(test):
  last = "assert add(0, 0) == 0"
  assert passed("def add(a, b): return a + b", test, last) == 1.0
  assert passed("__name__ = 'other'\ndef add(a, b): return a - b", test, last) == 0.5


def test_partial_reward_is_the_fraction_of_passed_tests():
  code = "def f(x):\n  if x > 2: raise OverflowError\n  return x * x"
  tests = ["assert f(1) == 1", "assert f(2) == 4", "assert f(3) == 9", "assert f(0) == 0"]
  assert passed(code, *tests) == 0.75
  scores = Code()("", code, "", {"tests": tests})
  assert scores == {"reward": 0.0, "accuracy": 0.0, "passed": 0.75}


def test_programs_read_input_and_print_output():
  code = "n = int(input())\nprint(*range(n))\nprint()"
  cases = [{"input": "3\n", "output": "0 1 2"}, {"input": "2", "output": "0 1 \n\n"}]
  assert passed(code, cases=cases) == 1.0
  assert passed(code, cases=[*cases, {"input": "1", "output": "1"}]) == pytest.approx(2 / 3)
  one = [{"input": "", "output": "1"}]
  assert passed("print(1)\nraise SystemExit(0)", cases=one) == 1.0
  assert passed("print(1)\nraise SystemExit(1)", cases=one) == 0.0
  assert passed("print(1)\n1/0", cases=one) == 0.0
  assert passed("if __name__ == '__main__': print(1)", cases=one) == 1.0


def test_programs_that_exceed_the_time_are_wrong_without_an_error():
  cases = [{"input": "", "output": "1"}] * 400
  code = Code(Limits(seconds=1.5))
  assert code("", "print(1)", "", {"cases": cases})["reward"] == 0.0


def test_the_ground_truth_can_be_the_test():
  assert CODE("", "def f(): return 1", "assert f() == 1")["reward"] == 1.0


@pytest.mark.parametrize(
  ("metadata", "message"),
  [
    ({}, "there must be at least one test"),
    ({"tests": [1]}, "all tests must be text"),
    ({"cases": [{"input": ""}]}, "each case needs an 'input' and an 'output'"),
    ({"tests": "assert ("}, "a test is not valid Python"),
    ({"tests": "f(lambda x: x)"}, "a test passes a function to the tested code"),
    ({"tests": "f(x=lambda x: x)"}, "a test passes a function to the tested code"),
    ({"tests": "C().f(lambda x: x)"}, "a test passes a function to the tested code"),
  ],
)
def test_bad_tests_raise_instead_of_failing_the_code(metadata, message):
  with pytest.raises(ValueError, match=message):
    CODE("", "def f(x): return 1\nclass C:\n  def f(self, x): return 1", "", metadata)


@pytest.mark.parametrize("level", LEVELS)
def test_unavailable_isolation_levels_raise(level):
  code = Code(isolation=level)
  call = ("", "def f(): return 1", "assert f() == 1")
  if available(level):
    assert code(*call)["reward"] == 1.0
  else:
    with pytest.raises(ValueError, match=f"isolation is '{level}', which does not work"):
      code(*call)


def test_weak_isolation_warns(monkeypatch):
  monkeypatch.setattr("pgax.rewards.code.best_level", lambda: "limits")
  with pytest.warns(IsolationWarning, match="isolated by limits .* NOT isolated: reading"):
    assert Code()("", "def f(): return 1", "assert f() == 1")["reward"] == 1.0
  assert best_level() in LEVELS


def test_unknown_isolation_is_rejected():
  with pytest.raises(ValueError, match="isolation is 'none'; it must be one of auto"):
    Code(isolation="none")


def test_code_runs_in_a_pool():
  code = Code(Limits(seconds=2.5))
  with Pool(code, workers=2, timeout_seconds=20.0) as pool:
    texts = ["def f(): return 1", "while True: pass", "import os; os._exit(0)", "1"]
    outcomes = pool([Job("", text, "assert f() == 1", {}) for text in texts])
  assert [x.scores["reward"] for x in outcomes] == [1.0, 0.0, 0.0, 0.0]


def test_a_test_that_imports_a_missing_module_raises():
  with pytest.raises(ValueError, match="imports numpy, which the sandbox does not have"):
    Code(Limits(seconds=5))(
      "", "def f(): return 1", "", {"tests": "import numpy\nassert f()"}
    )
