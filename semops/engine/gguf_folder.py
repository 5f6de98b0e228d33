"""A GGUF file unpacked into a Hugging Face folder, which is what vLLM reads fastest.

Covers what small local models come as: llama architecture, byte-level BPE tokenizer, any
quantisation that the ``gguf`` package can undo. Everything else raises `UnsupportedError` and names
what stood in the way. Needs neither torch nor transformers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from semops.errors import MissingExtraError, UnsupportedError

FORMAT = 1
"""Raised whenever the same file would give another folder, so that no stale folder is used."""

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # token types of the GGUF specification

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    "gpt-2": [_BYTE_LEVEL],
}


def convert(gguf_file: Path, folder: Path) -> None:
    """Write config, tokenizer and bfloat16 weights of a GGUF file into an existing folder.

    Parameters
    ----------
    gguf_file
        The file to read.
    folder
        Where the Hugging Face files go; tensors are written one by one, so peak memory is that of
        the largest tensor in float32.

    Raises
    ------
    UnsupportedError
        Another architecture, tokenizer or tensor than described above.
    MissingExtraError
        The ``gguf`` package isn't installed.

    Examples
    --------
    >>> convert(Path("model.gguf"), Path("model"))  # doctest: +SKIP
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        message = "reading a GGUF file needs the package 'gguf': pip install 'kalypso-semops[cpu]'"
        raise MissingExtraError(message) from error

    reader = GGUFReader(gguf_file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    # Everything that may be refused is built before the first large write.
    files = {
        "config.json": model_config(fields, tied=tied),
        "generation_config.json": _special_ids(fields),
        "tokenizer.json": tokenizer_json(fields),
        "tokenizer_config.json": tokenizer_config(fields),
    }
    names = [hf_name(tensor.name) for tensor in reader.tensors]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")
    _write_safetensors(folder / "model.safetensors", names, reader.tensors, fields)


def model_config(fields: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    """Build ``config.json`` of a llama model from GGUF metadata.

    Parameters
    ----------
    fields
        GGUF metadata by key.
    tied
        Whether the output projection is the embedding matrix (GGUF then leaves it out).

    Examples
    --------
    >>> model_config({"general.architecture": "bert"}, tied=False)
    Traceback (most recent call last):
        ...
    semops.errors.UnsupportedError: the GGUF file holds a 'bert' model; only 'llama' ...
    """
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedError(
            f"the GGUF file holds a {architecture!r} model; only 'llama' can be unpacked. "
            "Pass the model's Hugging Face id or folder instead."
        )
    if fields.get("llama.rope.scaling.type", "none") != "none":
        raise UnsupportedError(
            "the GGUF file scales its rotary positions, which can't be unpacked. "
            "Pass the model's Hugging Face id or folder instead."
        )
    hidden = fields["llama.embedding_length"]
    heads = fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "head_dim": fields.get("llama.attention.key_length", hidden // heads),
        "max_position_embeddings": fields["llama.context_length"],
        # Stored as float32: 1e-5 comes back as 9.99999974e-06.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": fields.get("llama.rope.freq_base", 10_000.0),
        "attention_bias": False,
        "mlp_bias": False,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        **_special_ids(fields),
    }


def tokenizer_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Build ``tokenizer.json`` (byte-level BPE) from GGUF metadata.

    Examples
    --------
    >>> tokenizer_json({"tokenizer.ggml.model": "llama"})
    Traceback (most recent call last):
        ...
    semops.errors.UnsupportedError: the GGUF file's tokenizer is 'llama' (None); ...
    """
    model, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise UnsupportedError(
            f"the GGUF file's tokenizer is {model!r} ({pre}); only byte-level BPE of the kinds "
            f"{sorted(_PRE_TOKENIZERS)} can be unpacked. "
            "Pass the model's Hugging Face id or folder instead."
        )
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    added = [
        {
            "id": token_id,
            "content": tokens[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for token_id, kind in enumerate(types)
        if kind in {_CONTROL, _USER_DEFINED}
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[str(pre)]},
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }


def tokenizer_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Build ``tokenizer_config.json``, chat template included, from GGUF metadata.

    Examples
    --------
    >>> fields = {"tokenizer.ggml.tokens": ["<s>"], "tokenizer.ggml.eos_token_id": 0}
    >>> tokenizer_config(fields)["eos_token"]
    '<s>'
    """
    tokens = fields["tokenizer.ggml.tokens"]
    special = {
        f"{role}_token": tokens[fields[key]]
        for role, key in (
            ("bos", "tokenizer.ggml.bos_token_id"),
            ("eos", "tokenizer.ggml.eos_token_id"),
            ("unk", "tokenizer.ggml.unknown_token_id"),
            ("pad", "tokenizer.ggml.padding_token_id"),
        )
        if key in fields
    }
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        **special,
    }
    if "llama.context_length" in fields:
        config["model_max_length"] = fields["llama.context_length"]
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    return config


def hf_name(gguf_name: str) -> str:
    """Translate a tensor's GGUF name into its Hugging Face name.

    Examples
    --------
    >>> hf_name("blk.7.attn_q.weight")
    'model.layers.7.self_attn.q_proj.weight'
    """
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", gguf_name)
    if found is None or found[2] not in _TENSORS:
        raise UnsupportedError(
            f"the GGUF file holds the tensor {gguf_name!r}, which a plain llama model lacks. "
            "Pass the model's Hugging Face id or folder instead."
        )
    layer = "" if found[1] is None else f"model.layers.{found[1]}."
    return f"{layer}{_TENSORS[found[2]]}.weight"


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16, ties to even, as 16-bit patterns (numpy has no such dtype).

    Examples
    --------
    >>> [hex(bits) for bits in bfloat16_bits(np.array([1.0, -2.5], np.float32))]
    ['0x3f80', '0xc020']
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounding = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + rounding) >> np.uint32(16)).astype("<u2")


def _special_ids(fields: Mapping[str, Any]) -> dict[str, Any]:
    keys = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
    return {
        f"{role}_token_id": fields[f"tokenizer.ggml.{key}"]
        for role, key in keys.items()
        if f"tokenizer.ggml.{key}" in fields
    }


def _write_safetensors(
    file: Path, names: list[str], tensors: list[Any], fields: Mapping[str, Any]
) -> None:
    from gguf import dequantize

    heads = fields["llama.attention.head_count"]
    heads_of = {"q_proj": heads, "k_proj": fields.get("llama.attention.head_count_kv", heads)}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in zip(names, tensors, strict=True):
        shape = [int(size) for size in reversed(tensor.shape)]
        start, end = end, end + 2 * int(tensor.n_elements)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # data starts aligned
    with file.open("wb") as out:
        out.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, tensor in zip(names, tensors, strict=True):
            values = dequantize(tensor.data, tensor.tensor_type)
            role = name.split(".")[-2]
            if role in heads_of:
                values = _rotary_halves(values, heads_of[role])
            out.write(bfloat16_bits(values).tobytes())


def _rotary_halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Undo llama.cpp's order of rotary rows (pairs) for Hugging Face's (halves)."""
    pairs = values.shape[0] // heads // 2
    return values.reshape(heads, pairs, 2, -1).swapaxes(1, 2).reshape(values.shape)
