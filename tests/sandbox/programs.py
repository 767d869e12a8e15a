"""Programs as people write them for judges that give standard input and compare output.

Each is a pair of a source and of its input. Whatever a plain `python solution.py` does with
it is right.
"""

SUM = "3\n1 2 3\n"
_TREE = """
import sys
def main():
  n = int(sys.stdin.readline())
  def depth(k):
    return 0 if k == 0 else 1 + depth(k - 1)
  print(depth(n))
"""

PROGRAMS = {
  # Ways to read.
  "input": ("n = int(input())\nprint(sum(map(int, input().split())), n)", SUM),
  "read": ("import sys\nprint(sys.stdin.read().split())", SUM),
  "readline": (
    "import sys\ninput = sys.stdin.readline\ninput()\nprint(repr(input()))",
    SUM,
  ),
  "readlines": ("import sys\nprint([x.strip() for x in sys.stdin.readlines()])", SUM),
  "iteration": ("import sys\nfor line in sys.stdin: print(line, end='')", SUM),
  "buffer": ("import sys\nprint(sys.stdin.buffer.read().split()[1:])", SUM),
  "open 0": ("print(open(0).read().split())", SUM),
  "os.read": ("import os\nprint(os.read(0, 100).decode().split())", SUM),
  "fileinput": ("import fileinput\nprint([x for x in fileinput.input()])", SUM),
  "dev stdin": ("input()\nprint(open('/dev/stdin').read().split())", SUM),
  "fdopen": ("import os\nprint(*os.fdopen(0))", SUM),
  "io": (
    "import io, os\nf = io.BytesIO(os.read(0, os.fstat(0).st_size))\nprint(f.readline())",
    SUM,
  ),
  "end": ("try:\n  while True: print(input())\nexcept EOFError: print('end')", SUM),
  "iter": ("import sys\nprint(list(iter(sys.stdin.readline, '')))", SUM),
  "mixed": ("import sys\nprint(input(), sys.stdin.readline(), sys.stdin.read())", SUM),
  "isatty": ("import sys\nprint(sys.stdin.isatty(), sys.stdin.encoding)", SUM),
  "unicode": ("print(input()[::-1], 'ß→€')", "añ日本\n"),
  "returns": ("import sys\nprint(repr(sys.stdin.read()))", "a\r\nb\n"),
  "empty": ("import sys\nprint(repr(sys.stdin.read()))", ""),
  "patched input": (
    "import builtins, sys\nbuiltins.input = lambda: sys.stdin.readline().upper()\n"
    "print(input())",
    "abc\n",
  ),
  # Ways to print.
  "write": ("import sys\nsys.stdout.write(input())", SUM),
  "stdout buffer": ("import sys\nsys.stdout.buffer.write(b'abc\\n')", SUM),
  "flush": ("print(1, flush=True)\nimport os\nos.write(1, b'2\\n')\nprint(3)", SUM),
  "patched print": (
    "import functools\nprint = functools.partial(print, sep='-')\nprint(1, 2)",
    SUM,
  ),
  "redirected": (
    "import io, sys\nold, sys.stdout = sys.stdout, io.StringIO()\nprint('lost')\n"
    "text = sys.stdout.getvalue()\nsys.stdout = old\nprint(len(text))",
    SUM,
  ),
  "open 1": ("with open(1, 'w') as f: f.write('abc')", SUM),
  "large": ("for i in range(100): print('x' * 10**5)", SUM),
  "errors": ("import sys\nprint('noise', file=sys.stderr)\nprint(1)", SUM),
  "nothing": ("pass", SUM),
  "closed": ("import sys\nprint(1)\nsys.stdout.close()", SUM),
  # Ways to end.
  "exit": ("print(1)\nexit()\nprint(2)", SUM),
  "quit": ("print(1)\nquit(0)", SUM),
  "exit 3": ("print(1)\nexit(3)", SUM),
  "sys.exit": ("import sys\nprint(1)\nsys.exit()", SUM),
  "message": ("import sys\nprint(1)\nsys.exit('message')", SUM),
  "os._exit": ("import os\nprint(1, flush=True)\nos._exit(0)", SUM),
  "lost": ("import os\nprint(1)\nos._exit(0)", SUM),
  "raises": ("print(1)\nraise ValueError", SUM),
  "kill": ("import os\nprint(1, flush=True)\nos.kill(os.getpid(), 9)", SUM),
  "atexit": ("import atexit\natexit.register(print, 'end')\nprint('start')", SUM),
  "atexit exit": ("import atexit\natexit.register(print, 'end')\nexit()", SUM),
  "excepthook": (
    "import sys\nsys.excepthook = lambda *_: print('caught')\nraise ValueError",
    SUM,
  ),
  "del": ("class T:\n  def __del__(self): print('gone')\nt = T()\nprint(1)", SUM),
  "thread": (
    "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(.05), print('end'))).start()\nprint(1)",
    SUM,
  ),
  "daemon": (
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True)"
    ".start()\nprint(1)",
    SUM,
  ),
  "thread raises": (
    "import threading\ndef f(): raise ValueError\nthreading.Thread(target=f).start()",
    SUM,
  ),
  "threads": (
    "import threading\nx = []\nt = [threading.Thread(target=x.append, args=(i,))"
    " for i in range(40)]\nfor y in t: y.start()\nfor y in t: y.join()\nprint(sum(x))",
    SUM,
  ),
  "pool": (
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(32) as p:\n"
    "  print(list(p.map(lambda x: x * x, range(20))))",
    SUM,
  ),
  "thread pool": (
    "from multiprocessing.pool import ThreadPool\nfrom multiprocessing import dummy\n"
    "with ThreadPool(4) as p: print(p.map(abs, [-1, 2]))\n"
    "with dummy.Pool(4) as p: print(p.map(abs, [-1, 2]))",
    SUM,
  ),
  "asyncio": (
    "import asyncio\nasync def f():\n  await asyncio.sleep(.01)\n  return 5\n"
    "print(asyncio.run(f()))",
    SUM,
  ),
  # Deep recursion.
  "recursion": (f"{_TREE}sys.setrecursionlimit(10**6)\nmain()", "100000\n"),
  "large stack": (
    f"{_TREE}import threading\nsys.setrecursionlimit(10**7)\nthreading.stack_size(2**29)\n"
    "t = threading.Thread(target=main)\nt.start()\nt.join()",
    "100000\n",
  ),
  "limit": ("import sys\nprint(sys.getrecursionlimit())", SUM),
  "too deep": (
    "def f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError: print(1)",
    SUM,
  ),
  "cached": (
    "import functools, sys\nsys.setrecursionlimit(10**5)\n@functools.lru_cache(None)\n"
    "def f(n): return n < 2 or f(n - 1)\nprint(f(4000))",
    SUM,
  ),
  # The main module.
  "main": ("def main(): print(input())\nif __name__ == '__main__': main()", SUM),
  "import main": ("import __main__\nx = 5\nprint(__main__.x, __name__)", SUM),
  "future": ("from __future__ import annotations\ndef f(x: Y): return x\nprint(f(1))", SUM),
  "dataclass": (
    "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    "@dataclass(order=True)\nclass P:\n  x: int\n  y: list[int]\n"
    "print(P(1, [2]) < P(2, []))",
    SUM,
  ),
  "hints": (
    "import typing\nclass P(typing.NamedTuple):\n  x: 'P'\n"
    "print(typing.get_type_hints(P)['x'] is P, P(1))",
    SUM,
  ),
  "pickle": (
    "import pickle\nclass P: x = 1\np = P()\np.x = 5\n"
    "print(pickle.loads(pickle.dumps(p)).x, P)",
    SUM,
  ),
  "globals": ("x = 1\nprint(sorted(k for k in globals() if k[0] != '_'), __doc__)", SUM),
  "names": ("import sys\nprint(sys.argv, __file__[-11:], sys.path[0] in __file__)", SUM),
  "inspect": ("import inspect\ndef f(): return 5\nprint(inspect.getsource(f))", SUM),
  "traceback": (
    "import traceback\ndef f(): return 1 / 0\ntry: f()\nexcept Exception:\n"
    "  print(traceback.format_exc().splitlines()[-3:])",
    SUM,
  ),
  "exec": ("exec('y = 5')\nprint(y, eval('y + 1'))", SUM),
  "import self": ("import sys\nprint('json' in sys.modules, 'pgax' in sys.modules)", SUM),
  "own file": ("print(__file__[-11:], len(open(__file__).read()))", SUM),
  "own module": (
    "if __name__ == '__main__':\n  import solution\n  print(solution.x)\nx = 5",
    SUM,
  ),
  "mark": ("\ufeffprint(1)", SUM),
  "coding": ("# -*- coding: latin-1 -*-\nprint('\u00e9')", SUM),
  "module names": ("print(sorted(dir()), __annotations__)", SUM),
  "module": (
    "open('other.py', 'w').write('x = 5')\nimport other\nprint(other.x)",
    SUM,
  ),
  # Numbers and containers.
  "many digits": ("print(len(str(10**5000)))", SUM),
  "set digits": (
    "import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(10**5000)))",
    SUM,
  ),
  "large list": ("x = list(range(2 * 10**6))\nx.sort(reverse=True)\nprint(x[0])", SUM),
  "libraries": (
    "import bisect, collections, decimal, fractions, heapq, itertools, math, re, string\n"
    "print(collections.Counter('aab'), decimal.Decimal('1.5') * 2, math.comb(5, 2))",
    SUM,
  ),
  "random": ("import random\nrandom.seed(5)\nprint(random.randint(1, 10**9))", SUM),
  "syntax": ("print(1", SUM),
  "help": ("print(copyright is not None, callable(help), repr(exit)[:3])", SUM),
  "file": ("open('a', 'w').write('5')\nprint(open('a').read())", SUM),
  "mkstemp": ("import tempfile\nprint(tempfile.TemporaryFile().write(b'abc'))", SUM),
  "gc": ("import gc\ngc.disable()\nprint(gc.isenabled())", SUM),
  "signal": ("import signal\nsignal.alarm(50)\nprint(signal.getsignal(2).__name__)", SUM),
}
