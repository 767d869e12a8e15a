"""The pool of worker processes: a bad job does not affect the others."""

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
  with Pool(by_command, workers=2, timeout_seconds=1.0) as opened:
    yield opened


def jobs(*completions, **metadata):
  return [Job("", completion, "", metadata) for completion in completions]


GOOD = Outcome({"reward": 1.0, "half": 0.5})


@pytest.mark.parametrize(
  ("completion", "reason", "detail"),
  [
    ("hang", "timeout", "it took longer than 1 s"),
    ("hang_in_c", "timeout", "longer than 1 s"),
    ("crash", "crash", "the worker process died"),
    ("kill", "crash", "died"),
    ("leave", "crash", "died"),
    ("exit", "exception", "SystemExit: 0"),
    ("raise", "exception", "KeyError: 'such a key'"),
    ("text", "exception", "ValueError: could not convert"),
    ("large", "exception", "the scores take"),
    ("nan", "nan", "the reward is nan"),
    ("inf", "nan", "the reward is inf"),
  ],
)
def test_a_bad_job_does_not_affect_others(pool, completion, reason, detail):
  outcomes = pool(jobs("a", "a", completion, "a", "a", "a"))
  assert outcomes[:2] + outcomes[3:] == [GOOD] * 5
  assert outcomes[2].reason == reason and detail in outcomes[2].detail


def test_many_bad_jobs_in_one_call(pool):
  kinds = ["kill", "a", "leave", "raise", "nan", "a", "crash", "a"] * 4
  outcomes = pool(jobs(*kinds))
  reasons = {"kill": "crash", "leave": "crash", "raise": "exception", "nan": "nan"}
  expected = [reasons.get(kind, "crash" if kind == "crash" else "") for kind in kinds]
  assert [x.reason for x in outcomes] == expected


@pytest.mark.parametrize("left", ["alarm", "late", "fork"])
def test_what_a_job_leaves_behind_costs_no_other_completion(left):
  with Pool(by_command, workers=1, timeout_seconds=60.0) as pool:
    outcomes = pool(jobs(*[left, "slow"] * 3, "a"))
  assert [x.reason for x in outcomes] == [""] * 7
  assert 7.0 not in [x.scores["reward"] for x in outcomes]  # that of a fork


def test_a_job_is_tried_again_only_if_its_worker_was_used(tmp_path):
  # `leave` kills the worker that ran `a`, and then a new one, once each.
  with Pool(by_command, workers=1, timeout_seconds=60.0) as pool:
    first = pool(jobs("modules"))[0].scores["processes"]
    outcomes = pool(jobs("a", "leave", "modules"))
  assert [x.reason for x in outcomes] == ["", "crash", ""]
  assert outcomes[2].scores["processes"] != first


def test_a_job_that_takes_too_much_memory_is_not_scored():
  limit = 2**30
  with Pool(by_command, workers=1, timeout_seconds=60.0, memory=limit) as pool:
    outcomes = pool(jobs("a", f"allocate {2 * limit}", "a", f"allocate {limit // 4}"))
  assert outcomes[0] == outcomes[2] == GOOD and outcomes[3].scores["reward"] == limit // 4
  assert outcomes[1].reason == "exception"
  assert outcomes[1].detail == "MemoryError: scoring.worker_memory allows 1073741824 bytes"


def test_outcomes_are_in_the_order_of_the_jobs(pool):
  outcomes = pool(jobs(*("x" * i for i in range(1, 40))))
  assert [x.scores["reward"] for x in outcomes] == list(range(1, 40))
  assert pool([]) == []


def test_a_missing_reward_is_left_to_the_caller(pool):
  assert pool(jobs("nothing")) == [Outcome({"accuracy": 1.0})]


def test_workers_run_in_parallel(tmp_path):
  with Pool(by_command, workers=2, timeout_seconds=60.0) as pool:
    # Each waits for the other to begin.
    both = jobs(f"meet {tmp_path}/a {tmp_path}/b", f"meet {tmp_path}/b {tmp_path}/a")
    assert [x.reason for x in pool(both)] == [""] * 2


def test_another_thread_can_use_the_pool(pool):
  outcomes = []
  thread = threading.Thread(target=lambda: outcomes.extend(pool(jobs("hang", "a"))))
  thread.start()
  thread.join()
  assert outcomes[0].reason == "timeout" and outcomes[1] == GOOD


def _alive(process):
  try:
    with open(f"/proc/{process}/stat") as stat:
      return stat.read().rpartition(")")[2].split()[0] != "Z"
  except FileNotFoundError:
    return False


def test_child_processes_of_a_function_die_with_it(pool, tmp_path):
  file = tmp_path / "pid"
  assert pool(jobs("spawn", file=str(file)))[0].reason == "timeout"
  assert eventually(lambda: not _alive(int(file.read_text())))


def test_closing_a_pool_ends_its_processes():
  with Pool(by_command, workers=1, timeout_seconds=5.0) as pool:
    process = int(pool(jobs("modules"))[0].scores["processes"])
    assert _alive(process) and process != os.getpid()
  assert eventually(lambda: not _alive(process))


def test_a_worker_that_dies_between_two_calls_is_replaced(pool):
  process = int(pool(jobs("modules"))[0].scores["processes"])
  os.kill(process, 9)
  assert eventually(lambda: not _alive(process))
  outcomes = pool(jobs("a", "a", "a", "a"))
  assert outcomes.count(GOOD) == 4


def test_a_worker_that_does_not_read_times_out(pool):
  process = int(pool(jobs("modules"))[0].scores["processes"])
  os.kill(process, signal.SIGSTOP)
  # More than a socket holds, so that all of it is never sent.
  outcomes = pool(jobs(*["a"] * 6, large="x" * 2**20))
  assert sorted(x.reason for x in outcomes) == [""] * 5 + ["timeout"]
  assert pool(jobs("a", large="x" * 2**22)) == [GOOD]


@pytest.mark.parametrize("metadata", [{"f": lambda: 1}, None])
def test_a_job_that_cannot_be_sent_does_not_affect_others(pool, metadata):
  outcomes = pool([*jobs("a", "a"), Job("", "a", "", metadata), *jobs("a")])
  assert outcomes[:2] + outcomes[3:] == [GOOD] * 3
  assert (
    outcomes[2].reason == "exception" and "can't be sent to a worker" in outcomes[2].detail
  )
  assert pool([Job("", "a", "", metadata)]) == [outcomes[2]]


class Interrupting(list):
  """Jobs during which the user interrupts the program."""

  def __getitem__(self, index):
    if index == 3:
      raise KeyboardInterrupt
    return super().__getitem__(index)


def test_an_interrupted_pool_is_closed():
  with Pool(by_command, workers=2, timeout_seconds=60.0) as pool:
    with pytest.raises(KeyboardInterrupt):
      pool(Interrupting(jobs("a", "hang", "a", "a", "a")))
    with pytest.raises(ValueError, match="the pool is closed, or a call was interrupted"):
      pool(jobs("a"))


def test_calls_of_several_threads_take_turns(pool):
  outcomes = {}

  def ask(letter):
    outcomes[letter] = pool(jobs(*(letter * i for i in range(1, 30)), "crash"))

  threads = [threading.Thread(target=ask, args=(letter,)) for letter in "ab"]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for results in outcomes.values():
    assert [x.scores.get("reward") for x in results] == [*range(1, 30), None]


def test_reward_functions_can_be_dataclasses():
  functions = {"math": Math(), "marked": final_answer}
  both = combine(functions, {"math": 1.0, "marked": 0.5})
  with Pool(both, workers=1, timeout_seconds=5.0) as pool:
    assert pool([Job("", "#### 7", "7", {})])[0].scores["reward"] == 1.5


def local(*_):
  return {"reward": 1.0}


def test_functions_that_workers_cannot_load_are_rejected():
  for function in (lambda *_: {"reward": 1.0}, type("Hidden", (), {"__call__": local})()):
    with pytest.raises(
      ValueError, match="can't load the reward function .* or set workers"
    ):
      Pool(function, workers=1, timeout_seconds=1.0)


@pytest.mark.parametrize(
  ("workers", "timeout", "message"),
  [
    (0, 1.0, "workers is 0"),
    (1, 0.0, r"timeout_seconds is 0\.0"),
    (1, float("inf"), "is inf"),
  ],
)
def test_bad_settings_are_rejected(workers, timeout, message):
  with pytest.raises(ValueError, match=message):
    Pool(final_answer, workers, timeout)


def test_scoring_without_worker_processes():
  outcomes = InProcess(by_command)(jobs("a", "nan"))
  assert outcomes[0] == GOOD and outcomes[1].reason == "nan"
  with pytest.raises(KeyError):
    InProcess(by_command)(jobs("raise"))
