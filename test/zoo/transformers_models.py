# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of transformers, made from small configurations; each computes its own loss."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from subject import ROWS, VOCABULARY, Subject, classes, images, padding, some_ignored, tokens

_SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=32,
)
_GROUPED = dict(_SIZES, num_key_value_heads=2)
_BERT = dict(_SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
_SPECIAL = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def _language(model: torch.nn.Module, mask: bool = False) -> Subject:
    """Next tokens, some of them ignored."""
    ids = tokens()
    batch = dict(input_ids=ids, labels=some_ignored(ids))
    if mask:
        batch["attention_mask"] = padding()
    return Subject(model.train(), batch)


def _causal(name: str, sizes: dict[str, Any] = _GROUPED, **options: Any) -> Subject:
    config = getattr(hf, f"{name}Config")(**{**sizes, **_SPECIAL, **options})
    return _language(getattr(hf, f"{name}ForCausalLM")(config))


def llama() -> Subject:
    """Rotary positions, grouped queries."""
    return _causal("Llama")


def llama_padded() -> Subject:
    """The same with an attention mask."""
    return _language(hf.LlamaForCausalLM(hf.LlamaConfig(**_GROUPED, **_SPECIAL)), mask=True)


def llama_tied() -> Subject:
    """The embedding is the head, so that both stages read it."""
    return _causal("Llama", tie_word_embeddings=True)


def mistral() -> Subject:
    """A window shorter than the sequence."""
    return _causal("Mistral", sliding_window=4)


def qwen2() -> Subject:
    """Projections with a bias."""
    return _causal("Qwen2")


def qwen3() -> Subject:
    """Queries and keys are normalized."""
    return _causal("Qwen3", head_dim=8)


def gemma2() -> Subject:
    """Scores and logits are capped by tanh, every other layer has a window."""
    return _causal("Gemma2", head_dim=8, query_pre_attn_scalar=8, sliding_window=4)


def gemma3() -> Subject:
    """Two rotary bases, norms on both sides."""
    config = hf.Gemma3TextConfig(**_GROUPED, **_SPECIAL, head_dim=8, query_pre_attn_scalar=8, sliding_window=4)
    return _language(hf.Gemma3ForCausalLM(config))


def gpt2() -> Subject:
    """Conv1D layers, learned positions, tied head."""
    sizes = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=32)
    config = hf.GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)
    return _language(hf.GPT2LMHeadModel(config))


def gpt_neox() -> Subject:
    """Attention and feed-forward side by side."""
    config = hf.GPTNeoXConfig(**_SIZES, **_SPECIAL, hidden_dropout=0.0, attention_dropout=0.0)
    return _language(hf.GPTNeoXForCausalLM(config))


def opt() -> Subject:
    """Positions counted by the mask."""
    sizes = dict(vocab_size=VOCABULARY, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4)
    config = hf.OPTConfig(**sizes, **_SPECIAL, max_position_embeddings=32, word_embed_proj_dim=32, dropout=0.0)
    return _language(hf.OPTForCausalLM(config))


def bloom() -> Subject:
    """Alibi in place of positions."""
    config = hf.BloomConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        n_layer=2,
        n_head=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **_SPECIAL,
    )
    return _language(hf.BloomForCausalLM(config))


def phi() -> Subject:
    """Rotary positions for a part of each head."""
    return _causal("Phi", resid_pdrop=0.0, embd_pdrop=0.0)


def falcon() -> Subject:
    """One key and value for all heads."""
    config = hf.FalconConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_dropout=0.0,
        **_SPECIAL,
    )
    return _language(hf.FalconForCausalLM(config))


def olmo2() -> Subject:
    """Norms behind attention and feed-forward."""
    return _causal("Olmo2")


def stablelm() -> Subject:
    """LayerNorm and rotary positions."""
    return _causal("StableLm", hidden_dropout=0.0)


def gpt_bigcode() -> Subject:
    """Multi-query attention of learned positions."""
    sizes = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=32)
    config = hf.GPTBigCodeConfig(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **_SPECIAL)
    return _language(hf.GPTBigCodeForCausalLM(config))


def bert() -> Subject:
    """Masked words, with padding."""
    return _language(hf.BertForMaskedLM(hf.BertConfig(**_BERT)), mask=True)


def bert_classes() -> Subject:
    """One label for each row."""
    model = hf.BertForSequenceClassification(hf.BertConfig(**_BERT, num_labels=5)).train()
    return Subject(model, dict(input_ids=tokens(), attention_mask=padding(), labels=classes()))


def bert_tokens() -> Subject:
    """One label for each token, some ignored."""
    model = hf.BertForTokenClassification(hf.BertConfig(**_BERT, num_labels=5)).train()
    labels = some_ignored(tokens(low=0, high=5))
    return Subject(model, dict(input_ids=tokens(), attention_mask=padding(), labels=labels))


def roberta() -> Subject:
    """Positions counted from the tokens that are no padding."""
    return _language(hf.RobertaForMaskedLM(hf.RobertaConfig(**{**_BERT, "pad_token_id": 1})), mask=True)


def distilbert() -> Subject:
    """A classifier over the first token."""
    sizes = dict(vocab_size=VOCABULARY, dim=32, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=32)
    config = hf.DistilBertConfig(**sizes, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=5)
    model = hf.DistilBertForSequenceClassification(config).train()
    return Subject(model, dict(input_ids=tokens(), attention_mask=padding(), labels=classes()))


def electra() -> Subject:
    """Embeddings smaller than the layers."""
    config = hf.ElectraConfig(**_BERT, embedding_size=16, num_labels=5)
    model = hf.ElectraForSequenceClassification(config).train()
    return Subject(model, dict(input_ids=tokens(), attention_mask=padding(), labels=classes()))


def deberta_v2() -> Subject:
    """Attention of content and positions apart."""
    config = hf.DebertaV2Config(
        **_BERT, num_labels=5, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
        # With weights of 0.02 attention is even, and the gradients of its key biases are zero but for rounding.
        initializer_range=0.2,
    )  # fmt: skip
    # Without it the model's loss looks at the labels to find out.
    config.problem_type = "single_label_classification"
    model = hf.DebertaV2ForSequenceClassification(config).train()
    return Subject(model, dict(input_ids=tokens(), attention_mask=padding(), labels=classes()))


def albert() -> Subject:
    """One layer that runs twice, which no cut divides."""
    config = hf.AlbertConfig(**_BERT, embedding_size=16, classifier_dropout_prob=0.0, num_labels=5)
    model = hf.AlbertForSequenceClassification(config).train()
    return Subject(model, dict(input_ids=tokens(), attention_mask=padding(), labels=classes()))


def t5() -> Subject:
    """Encoder and decoder, biases by distance."""
    config = hf.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return _between(hf.T5ForConditionalGeneration(config))


def bart() -> Subject:
    """Encoder and decoder with learned positions."""
    config = hf.BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32, dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, forced_eos_token_id=2, decoder_start_token_id=2, **_SPECIAL,
    )  # fmt: skip
    return _between(hf.BartForConditionalGeneration(config))


def _between(model: torch.nn.Module) -> Subject:
    labels = some_ignored(tokens(length=8))
    return Subject(model.train(), dict(input_ids=tokens(), attention_mask=padding(), labels=labels))


def mixtral() -> Subject:
    """Four experts, two for each token, all of whose weights are gathered."""
    return _causal("Mixtral", num_local_experts=4, num_experts_per_tok=2, experts_implementation="batched_mm")


def deepseek_v3() -> Subject:
    """Latent attention, one dense layer, then experts chosen in groups."""
    return _causal(
        "DeepseekV3", _SIZES, moe_intermediate_size=16, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=4,
        kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8, n_group=2, topk_group=1,
        num_experts_per_tok=2, first_k_dense_replace=1, experts_implementation="batched_mm",
    )  # fmt: skip


def mamba() -> Subject:
    """A state space model: a loop over the tokens."""
    config = hf.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, state_size=4, num_hidden_layers=2, time_step_rank=4, **_SPECIAL
    )
    return _language(hf.MambaForCausalLM(config))


def vit() -> Subject:
    """Patches of an image."""
    config = hf.ViTConfig(**_image_sizes(), num_labels=5)
    return Subject(hf.ViTForImageClassification(config).train(), dict(pixel_values=images(), labels=classes()))


def deit() -> Subject:
    """The same with a token for distillation."""
    config = hf.DeiTConfig(**_image_sizes(), num_labels=5)
    return Subject(hf.DeiTForImageClassification(config).train(), dict(pixel_values=images(), labels=classes()))


def convnextv2() -> Subject:
    """Convolutions of each channel, responses normalized over the image."""
    config = hf.ConvNextV2Config(
        num_channels=3, patch_size=2, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=5, image_size=16
    )
    return Subject(hf.ConvNextV2ForImageClassification(config).train(), dict(pixel_values=images(), labels=classes()))


def _image_sizes() -> dict[str, Any]:
    sizes = {name: _BERT[name] for name in _BERT if name not in ("vocab_size", "max_position_embeddings")}
    return dict(sizes, image_size=16, patch_size=4)


def clip() -> Subject:
    """Its loss compares each row with all others of a part."""
    text = dict(_SIZES, bos_token_id=1, eos_token_id=2, projection_dim=16)
    config = hf.CLIPConfig(
        text_config=text, vision_config=dict(_image_sizes_plain(), projection_dim=16), projection_dim=16
    )
    model = hf.CLIPModel(config).train()
    count = 2 * ROWS
    batch = dict(input_ids=tokens(count), pixel_values=images(count), attention_mask=padding(count), return_loss=True)
    rows = {f"kwargs.{name}": 0 for name in batch if name != "return_loss"}
    return Subject(model, dict(kwargs=batch), coupled=True, batch_dims=rows)


def _image_sizes_plain() -> dict[str, Any]:
    return {name: value for name, value in _image_sizes().items() if not name.endswith("prob")}


def whisper() -> Subject:
    """From a spectrum to text."""
    config = hf.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=8, max_target_positions=16,
        decoder_start_token_id=1, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0, **_SPECIAL,
    )  # fmt: skip
    model = hf.WhisperForConditionalGeneration(config).train()
    return Subject(model, dict(input_features=torch.randn(ROWS, 8, 16), labels=some_ignored(tokens(length=8))))


MODELS = [
    llama, llama_padded, llama_tied, mistral, qwen2, qwen3, gemma2, gemma3, gpt2, gpt_neox, opt, bloom, phi, falcon, olmo2, stablelm,
    gpt_bigcode, bert, bert_classes, bert_tokens, roberta, distilbert, electra, deberta_v2, albert, t5, bart, mixtral, deepseek_v3, mamba,
    vit, deit, convnextv2, clip, whisper,
]  # fmt: skip
