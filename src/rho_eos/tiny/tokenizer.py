"""The embedded model's tokenizer: whole words of its tasks, whole numbers, bytes for the rest.

Byte-level BPE without merges: text is cut into words, numbers of up to two digits, operators and
indents; a piece in the vocabulary is one token, any other is spelled in bytes. So every text
round-trips, and 0 to 99 are single tokens. The vocabulary is whatever the task generators write.
"""

from __future__ import annotations

from collections import Counter

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rho_eos.tiny.tasks import TASKS

BOS, EOS, MASK = "<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>"
START_HEADER, END_HEADER, END_OF_TURN = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
SPECIAL = (BOS, EOS, MASK, START_HEADER, END_HEADER, END_OF_TURN)
PIECE = (
    r"\n+ *| ?[A-Za-z]+| ?[0-9]{1,2}"
    r"| ?(?:####|>>>|\"\"\"|==|!=|//|\[::-1\]|[^\sA-Za-z0-9])|\s+"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
SAMPLE = 1500  # problems per task the vocabulary is taken from
MIN_COUNT = 12  # rarer pieces (made-up names, large results) are left to bytes


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, the same on every machine."""
    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    known = set(pieces)
    pieces += sorted(piece for piece in _frequent_pieces(cut) if piece not in known)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        mask_token=MASK,
        additional_special_tokens=[START_HEADER, END_HEADER, END_OF_TURN],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _frequent_pieces(cut: pre_tokenizers.PreTokenizer) -> list[str]:
    numbers = " ".join(str(n) for n in range(100)) + "\n" + "\n".join(str(n) for n in range(100))
    counts: Counter[str] = Counter()
    for task in TASKS.values():
        for seed in range(SAMPLE):
            problem = task.problem(seed, split="train")
            counts.update(piece for piece, _ in cut.pre_tokenize_str(problem.prompt))
            counts.update(piece for piece, _ in cut.pre_tokenize_str(problem.answer))
    roles = [piece for piece, _ in cut.pre_tokenize_str("user\n\nassistant\n\nsystem")]
    whole = [piece for piece, _ in cut.pre_tokenize_str(numbers)]
    return sorted({*whole, *roles, *(piece for piece, n in counts.items() if n >= MIN_COUNT)})
