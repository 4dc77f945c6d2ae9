"""Hugging Face transformers: `attn_implementation="tilekernels"`, in its registry of attention functions.

    from tilekernels.adapters.transformers import register

    register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="tilekernels", dtype="bfloat16")

What the kernels cannot do goes to torch's scaled_dot_product_attention, with one warning that says why: any mask but a plain
causal one or none (so padded batches, packed sequences, windows), dropout, a head dimension or dtype without kernels.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
    from transformers.utils import logging
except ImportError as error:
    raise ImportError(
        "the adapter needs transformers 5.24 or newer; pip install 'tilekernels[transformers]'"
    ) from error

from tilekernels.functional import attention
from tilekernels.policy import DTYPES_OF
from tilekernels.problem import HEAD_DIMS

NAME = "tilekernels"

_logger = logging.get_logger(__name__)


def register() -> None:
    """Make `attn_implementation="tilekernels"` known to transformers, for all models. May be called again."""
    AttentionInterface.register(NAME, attention_forward)
    # SDPA's masks: None where a plain causal mask, or none, is meant.
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_forward(  # noqa: PLR0917 - transformers' own argument list
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one layer, as transformers calls it.

    Args:
        module: the layer; its `is_causal` counts where the argument is None.
        query: (batch, heads, seqlen_q, head_dim).
        key: (batch, kv_heads, seqlen_k, head_dim).
        value: as key.
        attention_mask: None for a plain causal mask or none; else the work is SDPA's.
        dropout: of the weights; SDPA's, unless 0.
        scaling: factor of the scores; 1/sqrt(head_dim) when None.
        is_causal: whether a missing mask means a causal one.
        kwargs: handed on to SDPA.

    Returns:
        (batch, seqlen_q, heads, head_dim), and no weights.
    """
    reason = _beyond_the_kernels(query, value, attention_mask, dropout, kwargs)
    if reason is not None:
        _logger.warning_once(f"attn_implementation={NAME!r} leaves this to torch's SDPA: {reason}")
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal=is_causal, **kwargs
        )
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    seqlen_q = query.shape[2]
    causal = bool(is_causal) and seqlen_q > 1
    if causal and key.shape[2] > seqlen_q:
        # No mask and more keys than rows: a static cache, empty but for these rows. transformers means its beginning.
        key, value = key[:, :, :seqlen_q], value[:, :, :seqlen_q]
    out = attention(*(x.transpose(1, 2) for x in (query, key, value)), causal=causal, softmax_scale=scaling)
    return out, None


def _beyond_the_kernels(
    query: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float,
    others: dict[str, Any],
) -> str | None:
    kind = "cpu" if query.device.type == "cpu" else "hip" if torch.version.hip else "cuda"
    dtype = str(query.dtype).removeprefix("torch.")
    if attention_mask is not None:
        return "a mask other than plain causal (padding, packing, a window)"
    if dropout:
        return "dropout"
    if query.device.type not in ("cpu", "cuda"):
        return f"device {query.device}"
    if dtype not in DTYPES_OF[kind]:
        return f"{dtype}, on this device the kernels take {' or '.join(DTYPES_OF[kind])}"
    if query.shape[-1] not in HEAD_DIMS or value.shape[-1] != query.shape[-1]:
        return f"head dimensions {query.shape[-1]} and {value.shape[-1]}, the kernels have {HEAD_DIMS}"
    beyond = [name for name in ("position_bias", "softcap", "s_aux") if others.get(name) is not None]
    return ", ".join(beyond) or None
