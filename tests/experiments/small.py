"""The settings of a run that the programs are tried with."""

SMALL = [
  "--config.task.digits=1",
  "--config.sampling.prompts_per_step=4",
  "--config.sampling.group_size=4",
  "--config.sampling.max_prompt_tokens=5",
  "--config.sampling.max_completion_tokens=16",
  "--config.model.embed_dim=32",
  "--config.model.head_dim=8",
  "--config.model.mlp_dim=48",
  "--config.supervised.steps=300",
  "--config.supervised.batch_size=16",
  "--config.supervised.optimizer.decay_steps=300",
  "--config.steps=30",
  "--config.evaluation.problems=8",
  "--config.checkpoints.every=4",
]
