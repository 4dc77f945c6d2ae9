"""attn_implementation="tilekernels": tiny models with random weights give what SDPA gives, forward, backward and training."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")

from tilekernels.adapters import transformers as adapter  # noqa: E402

VOCABULARY = 96
CONFIGS = {
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, {}),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {"head_dim": 128}),
}


@pytest.fixture(autouse=True)
def _registered() -> None:
    adapter.register()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """`causal` of every call of the kernels."""
    made: list[bool] = []
    attention = adapter.attention

    def counted(*tensors: torch.Tensor, causal: bool, **options: Any) -> Any:
        made.append(causal)
        return attention(*tensors, causal=causal, **options)

    monkeypatch.setattr(adapter, "attention", counted)
    return made


def build(name: str, implementation: str = "sdpa", **changes: Any) -> torch.nn.Module:
    """A model of two layers, group 2, with the same weights every time."""
    config, model, extra = CONFIGS[name]
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    made = model(config(**shape, **heads, **extra, **changes, attn_implementation="sdpa"))
    made.set_attn_implementation(implementation)
    return made


def tokens(batch: int = 2, length: int = 37) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


def logits_and_gradients(model: torch.nn.Module, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    out = model(input_ids=tokens(), labels=tokens(), **inputs)
    out.loss.backward()
    found = {name: parameter.grad.double() for name, parameter in model.named_parameters()}
    return {"logits": out.logits.detach().double(), **found}


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_gradients_are_as_close_to_double_precision_as_sdpas(name: str, calls: list[bool]) -> None:
    exact = logits_and_gradients(build(name).double())
    plain = logits_and_gradients(build(name))
    ours = logits_and_gradients(build(name, "tilekernels"))
    assert calls == [True, True]
    for part, right in exact.items():
        # Twice the error of another float32 computation, and two roundings of the largest value: another order of sums.
        allowed = 2 * (plain[part] - right).abs().max() + 2 * 2.0**-23 * right.abs().max()
        assert (ours[part] - right).abs().max() <= allowed, part


def test_training_takes_the_same_course() -> None:
    losses = {}
    for implementation in ("sdpa", "tilekernels"):
        model = build("qwen2", implementation)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        losses[implementation] = []
        for _ in range(4):
            loss = model(input_ids=tokens(), labels=tokens()).loss
            losses[implementation].append(loss.item())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    assert losses["tilekernels"][-1] < losses["tilekernels"][0]
    assert losses["tilekernels"] == pytest.approx(losses["sdpa"], rel=1e-5)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_gives_the_same_tokens(cache: str, calls: list[bool]) -> None:
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache, "pad_token_id": 0}
    prompt = tokens(1, 9)
    mask = torch.ones_like(prompt)
    expected = build("llama").eval().generate(prompt, attention_mask=mask, **options)
    calls.clear()
    got = build("llama", "tilekernels").eval().generate(prompt, attention_mask=mask, **options)
    assert torch.equal(got, expected)
    assert calls[:2] == [True, True]
    if cache == "dynamic":
        assert calls[2:] == [False] * 10  # single rows over the cache


@pytest.mark.parametrize(
    ("reason", "changes", "inputs"),
    [
        ("a mask other than plain causal", {}, {"attention_mask": torch.ones(2, 37).index_fill(1, torch.arange(5), 0)}),
        ("dropout", {"attention_dropout": 0.5}, {}),
        ("head dimensions 32 and 32", {"head_dim": 32}, {}),
    ],
)
def test_what_the_kernels_cannot_do_is_sdpas_and_told(
    reason: str, changes: dict, inputs: dict, calls: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(adapter._logger, "warning_once", said.append)
    name = "llama" if "head_dim" in changes else "qwen2"
    monkeypatch.setitem(CONFIGS, "llama", (*CONFIGS["llama"][:2], {}))
    results = {}
    for implementation in ("sdpa", "tilekernels"):
        model = build(name, implementation, **changes).train()
        torch.manual_seed(3)
        results[implementation] = logits_and_gradients(model, **copy.deepcopy(inputs))
    assert calls == []
    assert all(reason in message for message in said)
    assert said
    assert all(torch.equal(x, y) for x, y in zip(*(r.values() for r in results.values()), strict=True))


def test_bfloat16_on_a_cpu_is_sdpas(calls: list[bool]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    build("qwen2", "tilekernels").bfloat16()(input_ids=tokens())
    assert calls == []


@pytest.mark.slow
def test_torch_compile_takes_a_model_whole() -> None:
    model = build("qwen2", "tilekernels")
    expected = model(input_ids=tokens()).logits
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(input_ids=tokens()).logits, expected, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_training_step_in_bfloat16_on_a_gpu() -> None:
    model = build("llama", "tilekernels").to("cuda", torch.bfloat16)
    loss = model(input_ids=tokens().cuda(), labels=tokens().cuda()).loss
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
