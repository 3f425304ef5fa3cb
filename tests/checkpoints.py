"""Small random checkpoints on disk, with a tokenizer of bytes and LLaDA's chat format."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM

SPECIAL = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|mdm_mask|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}"
    "<|end_header_id|>\n\n{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def byte_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """One token per byte; ids 0 to 5 are the special tokens."""
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        pad_token=SPECIAL[1],
        mask_token=SPECIAL[2],
        additional_special_tokens=list(SPECIAL[3:]),
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def unlisted_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """Made as LLaDA's is: added tokens beyond the model's vocabulary, most of them listed nowhere.

    Some are marked as special and some are not. Byte-level BPE that also learnt parts of them.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("<", "|"),
        ("|", ">"),
        ("e", "o"),
        ("eo", "t"),
        ("Ċ", "Ċ"),
        ("<|", "eot"),
        ("i", "d"),
    ]
    pieces = [*alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(content, special=True) for content in SPECIAL])
    tokenizer.add_tokens(
        [
            AddedToken(text, special=False, normalized=False)
            for text in ("<role>", "<|eot_id|>>", "ĠĠ")
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        pad_token=SPECIAL[1],
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def write_checkpoint(
    folder: Path,
    seed: int = 0,
    eos_bias: float = 0.0,
    chat_template: str | None = CHAT_TEMPLATE,
    tokenizer: PreTrainedTokenizerFast | None = None,
    width: int = 32,
    shard_size: str = "1GB",
    **more: Any,
) -> Path:
    """A LLaDA-layout checkpoint of random weights; `eos_bias` > 0 makes it end its answers.

    `more` are further fields of its config: with a `block_length` it attends in blocks.
    """
    tokenizer = tokenizer or byte_tokenizer(chat_template)
    torch.manual_seed(seed)
    config = LLaDAConfig(
        d_model=width,
        n_layers=2,
        n_heads=2,
        mlp_hidden_size=64,
        vocab_size=len(tokenizer),
        max_sequence_length=512,
        init_std=0.3,
        mask_token_id=tokenizer.convert_tokens_to_ids(SPECIAL[2]),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        **more,
    )
    model = LLaDAForMaskedLM(config)
    with torch.no_grad():
        model.lm_head.weight *= 8  # random models are undecided; this one has opinions
        model.lm_head.weight[tokenizer.eos_token_id] += eos_bias
    model.save_pretrained(folder, max_shard_size=shard_size)
    tokenizer.save_pretrained(folder)
    return folder
