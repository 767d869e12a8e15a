"""Where other libraries differ from pgax, and which preset equals which of their configs.

Every line was checked against the source of the other library at the commit named in
`SOURCES`; those of `MIGRATION` also by running its loss on the same arrays.
"""

SOURCES = {
  "TRL": "`f2cd577` (July 2026)",
  "verl": "`b178a3c` (January 2026)",
  "Tunix": "0.1.7",
  "NeMo RL": "`7ea279a`, goldens of `10cedfe` (August 2026)",
  "rlax": "tests at `21edfcf` and `461b4cf`",
  "polgrad": "0.2.1",
}

# The difference, who is right, and why.
DIFFERENCES = [
  (
    "NeMo RL and verl divide a mean over tokens by their number plus 1e-8",
    "pgax: a relative error of 2e-9 is harmless, but not needed; a mean of nothing is "
    "0 here by a condition. The table below multiplies pgax's means by `n / (n + 1e-8)`",
  ),
  (
    "NeMo RL adds 1e-8 to the length in GSPO's mean log-ratio, too",
    "pgax; the table allows 1e-8 for this case",
  ),
  (
    "NeMo RL's overlong penalty falls below -1 for completions beyond the limit: -1.0 "
    "for 30 tokens of 25 and a penalty of .5, where `shaping.overlong` gives -0.5",
    "pgax, which like TRL follows DAPO (2503.14476, equation 13), with -1 as the "
    "lowest. A sampler with the same limit never gets there",
  ),
  (
    "NeMo RL and verl clamp the k3 estimate to 10, and its log-ratio to ±20. A token "
    "beyond has no gradient",
    "pgax: a token that is far from the reference needs the penalty most. `kl.k3` is "
    "exact up to a log-ratio of 20 and continues as its tangent",
  ),
  (
    'Tunix\'s GRPO has k1 in the loss by default (`kl_loss_mode="kl"`)',
    "the paper (2402.03300) and pgax: k3. The expected gradient of k1 is 0 on policy, "
    "so that it adds noise and no pull to the reference",
  ),
  (
    "NeMo RL's GRPO uses a leave-one-out baseline by default, and the standard "
    "deviation of the others",
    "the paper (2402.03300) and pgax: mean and deviation of the whole group. In NeMo "
    "RL, `use_leave_one_out_baseline: false`",
  ),
  (
    "verl gives a group of one completion mean 0 and deviation 1, so that its "
    "advantage is its reward",
    "pgax, where it is 0: without others there is no baseline, and GRPO would silently "
    "become REINFORCE without one",
  ),
  (
    "verl's `seq-mean-token-sum-norm` (Dr. GRPO) divides by the length alone, and not "
    "by the number of sequences",
    "pgax, TRL and Tunix, by equation: the objective is a mean over completions. "
    "verl's gradient is larger by the number of sequences of the batch",
  ),
  (
    "Tunix's `sequence-mean-token-sum-norm` divides by the number of sequences, not by "
    "a length",
    "a matter of names: it is `aggregation.sequence_sum`",
  ),
  (
    "TRL, verl, Tunix and CS336 take the standard deviation of a sample (`ddof=1`), "
    "NumPy's and pgax's default is that of the population",
    "nobody: the paper does not say. `grpo(ddof=1)`; a factor of √((G-1)/G)",
  ),
  (
    "TRL adds 1e-4 to the standard deviation, verl, Tunix and CS336 1e-6",
    "nobody; `grpo(eps=1e-4)`",
  ),
  (
    "TRL's `masked_whiten` multiplies by `rsqrt(var + 1e-8)`, pgax divides by `std + 1e-8`",
    "nobody; equal to 1e-5 unless the variance is tiny",
  ),
  (
    "verl clips PPO's loss a second time by default (`clip_ratio_c: 3.0`)",
    "the paper (1707.06347) and pgax have no dual clip unless asked for: "
    "`parts.Clipped(.2, .2, 3.0)`",
  ),
  (
    "TRL's `epsilon_high` of CISPO is the largest weight, pgax's `clip_high` its "
    "distance from 1, as for all other clips",
    "a matter of names: `epsilon_high=5` is `clip_high=4`",
  ),
  (
    "NeMo RL can bound the weights of TIS from below, pgax from above alone",
    "pgax follows the source: the bound from above limits the variance; one from below "
    "raises the weight of tokens that the policy would not sample",
  ),
  (
    "NeMo RL's `seq-mask-tis` drops sequences by the geometric mean of their ratios",
    "pgax has no part for it; the table composes it from two ops",
  ),
  (
    "rlax has a discount for every step",
    "pgax has one for a completion. The table rescales rewards and values by the "
    "product of discounts, which is exact",
  ),
  (
    "rlax prints -0.17117467 for a clipped loss whose value is -(.5 + .1 e⁻²)/3 = "
    "-0.17117784",
    "pgax; rlax's test allows 1e-4",
  ),
  (
    "polgrad aggregates REINFORCE++ as a mean of sequences, the preset `reinforce_pp` "
    "as one of tokens",
    "nobody: the loss of a token is the same, and the table compares it with `grpo`'s "
    "weights",
  ),
]

# Preset, then its config in TRL, verl, Tunix and NeMo RL.
MIGRATION = [
  (
    "`grpo(kl_coef=β, ddof=1)`",
    '`loss_type="grpo"`, `beta=β`',
    "`adv_estimator: grpo`, `loss_agg_mode: seq-mean-token-mean`, `use_kl_loss: True`, "
    "`kl_loss_coef: β`; dual clip 3",
    '`GRPOConfig`, `beta=β`, `kl_loss_mode="low_var_kl"`',
    "`token_level_loss: false`, `use_leave_one_out_baseline: false`, "
    "`reference_policy_kl_penalty: β`",
  ),
  (
    "`dr_grpo()`",
    '`loss_type="dr_grpo"`, `scale_rewards="none"`',
    "`norm_adv_by_std_in_grpo: False`, `loss_agg_mode: seq-mean-token-sum-norm`, loss "
    "over the number of sequences",
    "`DrGRPOConfig`",
    "-",
  ),
  (
    "`dapo()`",
    '`loss_type="dapo"` (the default), `epsilon_high=0.28`',
    "`loss_agg_mode: token-mean`, `clip_ratio_high: 0.28`; dual clip 3",
    "`DAPOConfig`",
    "`ratio_clip_max: 0.28`, `use_leave_one_out_baseline: false`",
  ),
  (
    "`gspo()`",
    '`importance_sampling_level="sequence"`, `loss_type="grpo"`, `epsilon=3e-4`, '
    "`epsilon_high=4e-4`",
    "`loss_mode: gspo`, `clip_ratio_low: 3e-4`, `clip_ratio_high: 4e-4`, "
    "`loss_agg_mode: seq-mean-token-mean`",
    '`loss_algo="gspo-token"` has its gradient',
    "`sequence_level_importance_ratios: true`, `token_level_loss: false`",
  ),
  (
    "`cispo(clip_high=c)`",
    '`loss_type="cispo"`, `epsilon_high=1+c`',
    "`loss_mode: cispo`, `clip_ratio_high: c`; verl bounds the weight from below, too",
    "-",
    "`use_cispo: true`, `ratio_clip_max: c`; bounded from below, too",
  ),
  (
    "`sapo()`",
    '`loss_type="sapo"`',
    "`loss_mode: sapo`, `loss_agg_mode: seq-mean-token-mean`",
    "-",
    "-",
  ),
  (
    "`gmpo()`",
    "-",
    "`loss_mode: geo_mean`, `clip_ratio_low: 0.4`, `clip_ratio_high: 0.4`, "
    "`loss_agg_mode: seq-mean-token-mean`",
    "-",
    "-",
  ),
  (
    "`rloo()`: advantages",
    "`RLOOTrainer`",
    "`adv_estimator: rloo`",
    '`advantage_estimator="rloo"`',
    "`use_leave_one_out_baseline: true`, `normalize_rewards: false`",
  ),
  (
    "`opo()`: advantages",
    "-",
    "`adv_estimator: opo`",
    "-",
    "-",
  ),
  (
    "`ppo()`: advantages, with `whiten(ddof=1)`",
    "-",
    "`adv_estimator: gae`, `lam: 0.95`",
    "-",
    "-",
  ),
]
