"""Objects that would judge themselves, and honest code that returns similar ones.

Many cases share a sandbox; where one is judged wrongly, each is repeated alone.
"""

import time

import pytest

from pgax.sandbox import Limits, best_level, run_tests

LIMITS = Limits(seconds=10.0)

# Answers every question with what its class says, and every operation with itself.
LIES = """
import collections
YES = ("__eq__ __lt__ __le__ __gt__ __ge__ __contains__ __bool__ startswith endswith "
       "issuperset issubset isdisjoint isdigit isupper islower isalpha is_integer "
       "equals matches isidentifier is_nan same_quantum __instancecheck__").split()
SAME = ("__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ "
        "__mod__ __rmod__ __and__ __rand__ __or__ __xor__ __rxor__ __pow__ __abs__ __neg__ "
        "difference symmetric_difference union intersection strip lower round __round__ "
        "replace removeprefix __call__ copy").split()
ZERO = "__int__ __float__ __index__ find index count bit_length compare".split()
body = {n: lambda self, *a, **k: True for n in YES}
body |= {n: lambda self, *a, **k: self for n in SAME}
body |= {n: lambda self, *a, **k: 0 for n in ZERO}
body |= {"__ne__": lambda self, o: False, "__hash__": lambda self: 0}
body |= {"__init__": lambda self, *a: None}
T = type("T", (), body)
def f(*a): return T()
def Average(*a): return T()
def Primes(*a): return T()
class Mean(T): pass
class Area(T): pass
class Divisors(T): pass
class area(T): pass
class found(T): append = T.union
class Solution:
  def primes(self, n): return T()
  def itself(self, n): return self
  startswith = T.startswith
  __contains__ = T.__contains__
class Point(T):
  x = 1
class Text(str):
  startswith = endswith = T.startswith
  __eq__, __hash__ = T.__eq__, T.__hash__
class Number(float):
  __sub__ = __rsub__ = __abs__ = T.__sub__
  __lt__ = __eq__ = T.__eq__
class Set(set): issuperset = __contains__ = __sub__ = __eq__ = T.__eq__
class List(list): __contains__ = __eq__ = T.__eq__; count = T.count
class Dict(dict): __contains__ = __eq__ = T.__eq__; get = lambda self, key, *d: EVERYTHING
EVERYTHING = T()
Methods = collections.namedtuple("Methods", "startswith issuperset count real")
def kind(*a): return object
def functions(*a): return [len, print]
def methods(*a): return Methods(T.union, T.union, lambda *a: 0, T())
def text(*a): return Text("x")
def number(*a): return Number(99)
def members(*a): return Set()
def items(*a): return List()
def mapping(*a): return Dict()
def nested(*a): return [T()]
def pair(*a): return (T(), T())
def late(*a):
  T.__class__ = property(lambda self: str)
  return T()
"""

ATTACKS = """
(lambda r: r.append(1) or 5 in r)(found(2))
f(2).startswith('ab')
f(2).endswith('ab')
f(2).issuperset({1, 2})
f(2).issubset({1, 2})
f(2).isdisjoint({1, 2})
f(2).isdigit()
f(2).isupper()
f(2).is_integer()
f(2).__contains__(5)
f(2).__eq__(5)
f(2).__lt__(5)
f(2).__sub__(5)
f(2).__rsub__(5)
f(2).__bool__() and f(2).real < 5
f(2).__sub__(5) == 0
f(2).count(3) == 0
f(2).find('x') == 0
f(2).index('x') == 0
f(2).difference({1}) == 0
not f(2).symmetric_difference({1, 2})
f(2).strip().startswith('x')
f(2).copy().issuperset({5})
getattr(f(2), 'startswith')('x')
f(2) == 5
5 == f(2)
not f(2) != 5
f(2) in (5, 6)
5 in f(2)
f(2) < 5 < f(2)
abs(f(2) - 5) < .01
abs(5 - f(2)) < .01
round(f(2), 2) == 5.25
round(f(2) - 5) == 0
int(f(2)) == 0
f(2) % 5 == 0
f(2) / 5 == 1
f(2) & {5}
{5} <= f(2)
{5} - f(2) == set()
set(nested(2)) == {5}
nested(2) == [5]
nested(2)[0] == 5
nested(2)[0].startswith('x')
5 in nested(2)
pair(2) == (5, 6)
sorted(pair(2)) == [5, 6]
max(pair(2)) == 5
isinstance(f(2), str)
late(2).startswith('x')
late(2) == 'x'
abs(Average([10, 20]) - 26.333) < .01
7 in Primes(10)
Primes(10) == [2, 3, 5, 7]
abs(Mean([10, 20]) - 26.333) < .01
abs(26.333 - Mean([10, 20])) < .01
7 in Divisors(14)
Divisors(14).issuperset({2, 7})
Divisors(14).count(7) == 1
Area(2) == 5
Area(2) < 5
area(2) < area(3)
area(2) == area(3) == 5
area(2).startswith('x')
5 in Solution().primes(9)
Solution().primes(9).issuperset({2, 3})
Solution().primes(9).startswith('x')
Solution().primes(9) == [2, 3]
5 in Solution().itself(9)
Solution().itself(9).startswith('x')
Point(1, 2).x == 1 and Point(1, 2) == Point(3, 4)
Point(1, 2) == 5
Point(1, 2) < 5
methods(2).startswith('ab')
methods(2).issuperset({1, 2})
methods(2).count(3) == 0
isinstance(kind(2), str)
kind(2) == 5
kind(2).startswith('x')
functions(2)[0] is len
text(2).startswith('ab')
text(2) == 'ab'
abs(number(2) - 26) < .01
number(2) < 5
5 in members(2)
members(2) >= {5}
members(2) - {5} == {7}
5 in items(2)
items(2).count(5) == 1
5 in mapping(2)
mapping(2).get(5) == 7
"{}".format(f(2)) == '5'
len(f(2)) == 5
list(f(2)) == [5]
all(x == y for x, y in zip([5, 6], pair(2)))
""".strip().splitlines()

HONEST = """
from __future__ import annotations
import array, collections, contextlib, dataclasses, datetime, decimal, fractions, functools
import itertools, sys, typing

class Stack:
  def __init__(self, items=()): self.items = list(items)
  def push(self, x): self.items.append(x)
  def append(self, x): self.items.append(x)
  def pop(self): return self.items.pop()
  def __len__(self): return len(self.items)
  def __contains__(self, x): return x in self.items
  def __repr__(self): return f"Stack({self.items})"
  def __iter__(self): return iter(self.items)
  def __getitem__(self, i): return self.items[i]
  def __setitem__(self, i, x): self.items[i] = x
  def __delitem__(self, i): del self.items[i]
  def __bool__(self): return bool(self.items)
  def __enter__(self): return self
  def __exit__(self, *_): self.items.clear()
  def __reversed__(self): return reversed(self.items)
  def find(self, x): return self.items.index(x)
class Solution:
  def f(self, x): return x + 1
  def reverse(self, x): return x[::-1]
  def count(self, x, y): return x.count(y)
  def stack(self): return Stack([7])
class Counter:
  def __init__(self): self.total = 0
  def add(self, x): self.total += x
class Trie:
  def __init__(self): self.words = []
  def insert(self, x): self.words.append(x)
  def startswith(self, x): return any(w.startswith(x) for w in self.words)
@dataclasses.dataclass(order=True, unsafe_hash=True)
class Point:
  x: int
  y: int = 0
  def __add__(self, o): return Point(self.x + o.x, self.y + o.y)
  def __mul__(self, k): return Point(self.x * k, self.y * k)
  __rmul__ = __mul__
  def __abs__(self): return (self.x ** 2 + self.y ** 2) ** .5
  def moved(self, k): return Point(self.x + k, self.y)
  @classmethod
  def origin(cls): return cls(0, 0)
class Node:
  def __init__(self, value, next=None): self.value, self.next = value, next
class Names(list):
  def longest(self): return max(self, key=len)
class Pair(typing.NamedTuple):
  left: int
  right: int
  def total(self): return self.left + self.right
class Account:
  def __init__(self, name): self.name, self.balance = name, 0
  def deposit(self, x):
    if x < 0: raise ValueError("negative")
    self.balance += x
Color = collections.namedtuple("Color", "red green")
def linked(xs): return functools.reduce(lambda n, x: Node(x, n), reversed(xs), None)
def unlinked(n): return [] if n is None else [n.value, *unlinked(n.next)]
def account(name): return Account(name)
def counter():
  n = itertools.count(1)
  return lambda: next(n)
def adder(x): return lambda y: x + y
def counted(x): return collections.Counter(x)
def ordered(x): return collections.OrderedDict.fromkeys(x)
def grouped(x):
  d = collections.defaultdict(list)
  for y in x: d[y % 2].append(y)
  return d
def queue(x): return collections.deque(x, maxlen=3)
def color(): return Color(1, 2)
def half(): return fractions.Fraction(1, 2)
def price(): return decimal.Decimal("1.10")
def day(): return datetime.date(2024, 2, 29)
def moment(): return datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)
def span(): return datetime.timedelta(days=1, seconds=5)
def keys(d): return d.keys()
def values(d): return d.values()
def pairs(d): return d.items()
def numbers(): return array.array("i", [1, 2])
def naturals(): yield from itertools.count()
def mapped(x): return map(str, x)
def zipped(x, y): return zip(x, y)
def frozen(x): return frozenset(x)
def digits(): return 10 ** 5000
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
def rotate(q): q.rotate(1)
def apply(f, *xs, key=None): return f(*xs) if key is None else f(*xs, key=key)
def kind(x): return type(x)
def ordered_in_place(x):
  x.sort()
  return x
def copied(x): return list(x)
class Refused(ValueError):
  def __init__(self, code): super().__init__(f"code {code}")
def refuse(k): raise [KeyError("k"), OSError(2, "no"), Refused(7), ValueError("a", [1])][k]
def leave(): exit()
sys.setrecursionlimit(20000)
"""

RIGHT = r"""
s = Stack(); s.push(1); assert s.pop() == 1 and len(s) == 0
s = Stack([1, 2]); s.append(3); assert 3 in s and 4 not in s
assert Stack([1, 2]).pop() == 2
assert repr(Stack([1])) == 'Stack([1])' == str(Stack([1])) == f'{Stack([1])}'
assert list(Stack([1, 2])) == [1, 2] and Stack([5])[0] == 5 and not Stack()
s = Stack([1, 2]); s[0] = 7; del s[1]; assert s.items == [7]
with Stack([1]) as s: assert s.items == [1]
assert list(reversed(Stack([1, 2]))) == [2, 1]
assert isinstance(Stack(), Stack) and not isinstance(5, Stack)
assert Stack() != None and Stack() is not None
assert Solution().f(3) == 4
assert Solution().reverse('ab') == 'ba' and Solution().count('aab', 'a') == 2
assert len(Solution().stack()) == 1 and Solution().stack().items == [7]
c = Counter(); c.add(1); assert c.total == 1
t = Trie(); t.insert('apple'); assert t.startswith('app') and not t.startswith('b')
p = Point(1, 2); assert p == Point(1, 2) and p != Point(2, 1) and not p == Point(2, 1)
assert Point(1, 2) + Point(3, 4) == Point(4, 6) and (Point(1) + Point(2)).x == 3
assert (Point(1, 2) * 3).y == 6 and (3 * Point(1, 2)).x == 3
assert Point(1) < Point(2) <= Point(2) and sorted([Point(2), Point(1)])[0].x == 1
assert abs(Point(3, 4)) == 5 and len({Point(1), Point(1), Point(2)}) == 2
assert Point(1, 2).moved(3) == Point(4, 2) and Point.origin() == Point(0, 0)
assert str(Point(1, 2)) == 'Point(x=1, y=2)'
p = Point(1); p.x = 9; assert p.x == 9 and hasattr(p, 'y') and not hasattr(p, 'z')
head = linked([1, 2, 3]); assert head.value == 1 and head.next.next.value == 3
assert unlinked(linked([1, 2])) == [1, 2] and unlinked(Node(1, Node(2))) == [1, 2]
assert linked([1]).next is None and linked([]) is None
n = Names(['a', 'bcd']); assert n.longest() == 'bcd' and n == ['a', 'bcd'] and len(n) == 2
assert Pair(1, 2).total() == 3 and Pair(1, 2) == (1, 2) and Pair(1, 2).left == 1
a = account('b'); a.deposit(5); assert a.balance == 5 and a.name == 'b'
try: Account('a').deposit(-1); assert 0\nexcept ValueError as e: assert str(e) == 'negative'
c = counter(); assert c() == 1 and c() == 2
assert adder(2)(3) == 5
assert counted('aab') == {'a': 2, 'b': 1} and counted('aab').most_common(1) == [('a', 2)]
import collections; assert counted('aab') == collections.Counter('aab')
assert list(ordered('ba')) == ['b', 'a'] and ordered('b').popitem(last=False) == ('b', None)
assert grouped([1, 2, 3]) == {1: [1, 3], 0: [2]} and grouped([1])[5] == []
assert list(queue([1, 2, 3, 4])) == [2, 3, 4] and queue([1]).maxlen == 3
from collections import deque; assert queue([1]) == deque([1]) and queue([1]).popleft() == 1
assert color() == (1, 2) and color().red == 1 and color()._replace(red=5) == (5, 2)
assert half() * 3 == 1.5 and half().numerator == 1 and abs(half() - .5) < 1e-9
import decimal; assert price() == decimal.Decimal('1.1') and str(price()) == '1.10'
import datetime; assert day() == datetime.date(2024, 2, 29) and day().weekday() == 3
assert moment().isoformat() == '2024-02-29T12:00:00+00:00' and moment().tzinfo is not None
assert span().total_seconds() == 86405
assert keys({1: 2}) == {1} and list(keys({1: 2})) == [1] and keys({1: 2}) == {1: 3}.keys()
assert list(values({1: 2})) == [2] and sorted(pairs({1: 2})) == [(1, 2)]
assert 1 in keys({1: 2}) and 2 in values({1: 2}) and (1, 2) in pairs({1: 2})
assert numbers().tolist() == [1, 2] and sum(numbers()) == 3
import itertools; assert list(itertools.islice(naturals(), 3)) == [0, 1, 2]
g = naturals(); assert next(g) == 0 and next(g) == 1
assert list(mapped([1])) == ['1'] and dict(zipped('a', [1])) == {'a': 1}
assert isinstance(frozen([1]), frozenset) and frozen([1]).issuperset({1}) and not frozen('')
assert digits() == 10 ** 5000 and deep(9000) == 9000
from collections import deque; q = deque([1, 2]); rotate(q); assert q == deque([2, 1])
def check(candidate): assert candidate([3]) == {3}\ncheck(frozen)
def check(cls): s = cls([2]); s.push(1); assert 1 in s\ncheck(Stack)
assert apply(max, 1, 2) == 2 and apply(str.upper, 'a') == 'A' and apply(list, 'a') == ['a']
import math; assert apply(math.sqrt, 4) == 2 and apply(max, 'a', 'bb', key=len) == 'bb'
import operator; assert apply(operator.add, 1, 2) == 3
assert kind(1) is int and kind('a') == str and kind(None) is type(None) and kind(1) != float
assert copied(iter([1])) == copied(x for x in [1]) == copied(map(int, '1')) == [1]
assert copied(zip('a', [1])) == [('a', 1)] and copied(reversed([1, 2])) == [2, 1]
import itertools; assert copied(itertools.chain([1], [2])) == [1, 2]
a = [2, 1]; assert ordered_in_place(a) is a == [1, 2] and copied(a) is not a
x = ordered_in_place([2, 1]); x.append(3); assert x == [1, 2, 3]
try: refuse(0); assert 0\nexcept KeyError as e: assert e.args == ('k',) and str(e) == "'k'"
try: refuse(1); assert 0\nexcept FileNotFoundError as e: assert e.errno == 2
try: refuse(2); assert 0\nexcept ValueError as e: assert str(e) == 'code 7'
try: refuse(3); assert 0\nexcept ValueError as e: assert e.args == ('a', [1])
from concurrent.futures import *; assert sum(ThreadPoolExecutor(4).map(deep, [5] * 9)) == 45
assert deep.__name__ == 'deep' and vars(Account('a')) == {'name': 'a', 'balance': 0}
try: leave(); assert 0\nexcept AssertionError: raise\nexcept BaseException: pass
""".strip().splitlines()


def count(code, tests):
  return run_tests(code, tests, LIMITS, best_level(), time.monotonic() + LIMITS.seconds)


def alone(code, tests, passing):
  """Returns the tests that have the given outcome when each is in its own sandbox."""
  return [test for test in tests if count(code, [test]) == passing]


def test_no_object_forges_a_pass():
  tests = [f"assert {test}" for test in ATTACKS]
  assert len(tests) >= 80
  assert count(LIES, tests) == 0, alone(LIES, tests, 1)
  assert count(LIES, ["assert f(2)", "assert f(2) is not None"]) == 2  # as any value


def test_honest_code_passes():
  tests = [test.replace("\\n", "\n") for test in RIGHT]
  assert len(tests) >= 50
  assert count(HONEST, tests) == len(tests), alone(HONEST, tests, 0)
  wrong = [f"{test}\nassert 0" for test in tests]
  assert count(HONEST, wrong) == 0


@pytest.mark.parametrize(
  ("code", "test"),
  [
    # It is equal to everything, in a class that the tests do use as one.
    ("class P:\n  x = 1\n  def __eq__(self, o): return True", "assert P() == P()"),
    (
      "class f:\n  def append(self, x): pass\n  def __contains__(self, x): return True",
      "r = f(2)\nr.append(3)\nassert 5 in r",
    ),
    (
      "class f:\n  def startswith(self, x): return True",
      "def check(candidate): assert candidate().startswith('x')\ncheck(f)",
    ),
    ("exit()\ndef f(x): return 3", "assert f(2) == 3"),
    ("x = input()\ndef f(x): return 3", "assert f(2) == 3"),
  ],
)
def test_other_forgeries_and_faults_fail(code, test):
  assert count(code, [test]) == 0
