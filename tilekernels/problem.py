"""One attention problem: the shapes, the element type and the mask. No tensors, no device."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES: dict[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4}
"""Element types and their size in bytes."""

HEAD_DIMS: tuple[int, ...] = (64, 128)

MAX_BATCH = 65_535
"""A batch entry is one step of the grid's z axis, which ends here on CUDA and HIP."""

MAX_SEQLEN = 1 << 21
"""Row blocks are the grid's y axis, which ends at 65,535 as well: this is half of what blocks of 64 rows can reach."""


@dataclass(frozen=True)
class AttentionProblem:
    """softmax(Q K^T * scale + mask) V for a batch of sequences of equal length.

    Attributes:
        batch: sequences; 0 is legal and means no work.
        heads: query heads, a multiple of kv_heads (grouped-query attention).
        kv_heads: key and value heads.
        seqlen_q: queries a sequence; 0 is legal.
        seqlen_k: keys a sequence; 0 is legal: every row is then fully masked.
        head_dim: one of `HEAD_DIMS`.
        dtype: one of `DTYPES`, of Q, K, V and the output. Sums are always float32.
        causal: query i sees keys j <= i + seqlen_k - seqlen_q (the mask is aligned to the bottom right).

    Raises:
        TypeError: a field of the wrong type.
        ValueError: a value out of range; the message names the field and what was expected.
    """

    batch: int
    heads: int
    kv_heads: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    dtype: str
    causal: bool

    def __post_init__(self) -> None:
        """Reject what no kernel can run."""
        for name, least, most in (
            ("batch", 0, MAX_BATCH),
            ("heads", 1, 2**31 - 1),
            ("kv_heads", 1, 2**31 - 1),
            ("seqlen_q", 0, MAX_SEQLEN),
            ("seqlen_k", 0, MAX_SEQLEN),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, got {value!r}")
            if not least <= value <= most:
                raise ValueError(f"{name} must be between {least} and {most}, got {value}")
        if not isinstance(self.causal, bool):
            raise TypeError(f"causal must be a bool, got {self.causal!r}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads must be a multiple of kv_heads (each key head serves a whole group of query heads), "
                f"got {self.heads} and {self.kv_heads}"
            )
        if self.head_dim not in HEAD_DIMS:
            raise ValueError(f"head_dim must be one of {HEAD_DIMS}, got {self.head_dim!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {tuple(DTYPES)}, got {self.dtype!r}")

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.kv_heads

    @property
    def tokens(self) -> int:
        """Query tokens of the whole batch."""
        return self.batch * self.seqlen_q
