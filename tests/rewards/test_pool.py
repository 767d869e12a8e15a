"""A pool of worker processes: bad jobs cost themselves alone."""

import os
import signal
import threading

import pytest

from pgax.rewards import Math, combine, final_answer
from pgax.rewards.pool import InProcess, Job, Outcome, Pool
from tests.rewards.functions import by_command
from tests.waiting import eventually


@pytest.fixture(scope="module")
def pool():
  with Pool(by_command, workers=2, deadline=1.0) as opened:
    yield opened


def jobs(*completions, **metadata):
  return [Job("", completion, "", metadata) for completion in completions]


GOOD = Outcome({"reward": 1.0, "half": 0.5})


@pytest.mark.parametrize(
  ("completion", "reason", "detail"),
  [
    ("hang", "timeout", "it took longer than the deadline of 1 s"),
    ("hang_in_c", "timeout", "deadline"),
    ("crash", "crash", "the worker process died"),
    ("kill", "crash", "died"),
    ("leave", "crash", "died"),
    ("exit", "exception", "SystemExit: 0"),
    ("raise", "exception", "KeyError: 'such a key'"),
    ("text", "exception", "ValueError: could not convert"),
    ("large", "exception", "its scores take"),
    ("nan", "nan", "the reward is nan"),
    ("inf", "nan", "the reward is inf"),
  ],
)
def test_a_bad_job_costs_itself_alone(pool, completion, reason, detail):
  found = pool(jobs("a", "a", completion, "a", "a", "a"))
  assert found[:2] + found[3:] == [GOOD] * 5
  assert found[2].reason == reason and detail in found[2].detail


def test_many_bad_jobs(pool):
  kinds = ["kill", "a", "leave", "raise", "nan", "a", "crash", "a"] * 4
  found = pool(jobs(*kinds))
  reasons = {"kill": "crash", "leave": "crash", "raise": "exception", "nan": "nan"}
  expected = [reasons.get(kind, "crash" if kind == "crash" else "") for kind in kinds]
  assert [x.reason for x in found] == expected


def test_order_is_that_of_the_jobs_and_nothing_is_no_work(pool):
  found = pool(jobs(*("x" * i for i in range(1, 40))))
  assert [x.scores["reward"] for x in found] == list(range(1, 40))
  assert pool([]) == []


def test_a_missing_reward_is_for_the_caller(pool):
  assert pool(jobs("nothing")) == [Outcome({"accuracy": 1.0})]


def test_workers_overlap(tmp_path):
  with Pool(by_command, workers=2, deadline=60.0) as pool:
    # Each waits for the other to begin.
    both = jobs(f"meet {tmp_path}/a {tmp_path}/b", f"meet {tmp_path}/b {tmp_path}/a")
    assert [x.reason for x in pool(both)] == [""] * 2


def test_another_thread_may_ask(pool):
  found = []
  thread = threading.Thread(target=lambda: found.extend(pool(jobs("hang", "a"))))
  thread.start()
  thread.join()
  assert found[0].reason == "timeout" and found[1] == GOOD


def _alive(process):
  try:
    with open(f"/proc/{process}/stat") as stat:
      return stat.read().rpartition(")")[2].split()[0] != "Z"
  except FileNotFoundError:
    return False


def test_what_a_function_started_dies_with_it(pool, tmp_path):
  file = tmp_path / "pid"
  assert pool(jobs("spawn", file=str(file)))[0].reason == "timeout"
  assert eventually(lambda: not _alive(int(file.read_text())))


def test_nothing_is_left_when_it_is_closed():
  with Pool(by_command, workers=1, deadline=5.0) as pool:
    process = int(pool(jobs("modules"))[0].scores["processes"])
    assert _alive(process) and process != os.getpid()
  assert eventually(lambda: not _alive(process))


def test_a_worker_that_died_between_two_calls_is_found(pool):
  process = int(pool(jobs("modules"))[0].scores["processes"])
  os.kill(process, 9)
  assert eventually(lambda: not _alive(process))
  found = pool(jobs("a", "a", "a", "a"))
  assert found.count(GOOD) == 4


def test_a_worker_that_does_not_read_is_over_the_deadline(pool):
  process = int(pool(jobs("modules"))[0].scores["processes"])
  os.kill(process, signal.SIGSTOP)
  # More than a socket holds, so that all of it is never sent.
  found = pool(jobs(*["a"] * 6, large="x" * 2**20))
  assert sorted(x.reason for x in found) == [""] * 5 + ["timeout"]
  assert pool(jobs("a", large="x" * 2**22)) == [GOOD]


@pytest.mark.parametrize("metadata", [{"f": lambda: 1}, None])
def test_a_job_that_can_not_be_sent_costs_itself_alone(pool, metadata):
  found = pool([*jobs("a", "a"), Job("", "a", "", metadata), *jobs("a")])
  assert found[:2] + found[3:] == [GOOD] * 3
  assert found[2].reason == "exception" and "can't be sent to a worker" in found[2].detail
  assert pool([Job("", "a", "", metadata)]) == [found[2]]


class Interrupting(list):
  """Jobs that are asked for until the user has had enough."""

  def __getitem__(self, index):
    if index == 3:
      raise KeyboardInterrupt
    return super().__getitem__(index)


def test_an_interrupted_pool_is_closed_and_says_so():
  with Pool(by_command, workers=2, deadline=60.0) as pool:
    with pytest.raises(KeyboardInterrupt):
      pool(Interrupting(jobs("a", "hang", "a", "a", "a")))
    with pytest.raises(ValueError, match="the pool is closed, or a call was interrupted"):
      pool(jobs("a"))


def test_threads_take_turns(pool):
  found = {}

  def ask(letter):
    found[letter] = pool(jobs(*(letter * i for i in range(1, 30)), "crash"))

  threads = [threading.Thread(target=ask, args=(letter,)) for letter in "ab"]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for told in found.values():
    assert [x.scores.get("reward") for x in told] == [*range(1, 30), None]


def test_values_are_functions_too():
  functions = {"math": Math(), "marked": final_answer}
  both = combine(functions, {"math": 1.0, "marked": 0.5})
  with Pool(both, workers=1, deadline=5.0) as pool:
    assert pool([Job("", "#### 7", "7", {})])[0].scores["reward"] == 1.5


def local(*_):
  return {"reward": 1.0}


def test_what_workers_can_not_load_is_refused():
  for function in (lambda *_: {"reward": 1.0}, type("Hidden", (), {"__call__": local})()):
    with pytest.raises(
      ValueError, match="can't load the reward function .* or set workers"
    ):
      Pool(function, workers=1, deadline=1.0)


@pytest.mark.parametrize(
  ("workers", "deadline", "told"),
  [(0, 1.0, "workers is 0"), (1, 0.0, r"deadline is 0\.0"), (1, float("inf"), "is inf")],
)
def test_bad_settings(workers, deadline, told):
  with pytest.raises(ValueError, match=told):
    Pool(final_answer, workers, deadline)


def test_in_the_process_itself():
  found = InProcess(by_command)(jobs("a", "nan"))
  assert found[0] == GOOD and found[1].reason == "nan"
  with pytest.raises(KeyError):
    InProcess(by_command)(jobs("raise"))
