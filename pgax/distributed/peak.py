"""Peak floating-point operations per second of known devices."""

import jax

# Dense bfloat16 operations per second, from the vendors' data sheets; the beginning of
# `device_kind`, longer ones first.
_PEAKS = {
  "NVIDIA H100 PCIe": 756e12,
  "NVIDIA H100": 989e12,
  "NVIDIA H200": 989e12,
  "NVIDIA A100": 312e12,
  "TPU v6 lite": 918e12,
  "TPU v5p": 459e12,
  "TPU v5 lite": 197e12,
  "TPU v5": 459e12,
  "TPU v4": 275e12,
}


def peak_flops(setting: float = 0.0, kind: str | None = None) -> float | None:
  """Returns the peak operations per second of a device.

  Args:
    setting: number to return if it is not 0.
    kind: name of the device; None for that of this process's first device.

  Returns:
    Operations per second; None if the device is not known.
  """
  if setting:
    return setting
  kind = jax.local_devices()[0].device_kind if kind is None else kind
  return next((peak for name, peak in _PEAKS.items() if kind.startswith(name)), None)
